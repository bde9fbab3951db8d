"""What a process of ours does that could turn data into code, seen by the interpreter's own hook and written to a file.

The same text watches the front, as its ``sitecustomize``, and a worker, from a step's own code. Whatever is not of the
closed list of harmless acts below is a finding.
"""

WATCH = '''
import os
import sys
import sysconfig

LIBRARIES = tuple({sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), SOURCE, "<frozen"})
MAKERS_OF_CLASSES = ("dataclasses.py", "collections/__init__.py", "enum.py", "typing.py")
IMPORTERS = ("<frozen importlib", "<frozen zipimport")
SYSTEM = ("/proc/", "/dev/", "/sys/", "/usr/", "/etc/", "/lib")
SPAWNED = (["-I", "-m", "forwardpass.execution.boxed"], ["-I", "-m", "forwardpass.execution.forking"])
NEVER = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")


def finding(event, arguments, caller):
    """Why this act is not to be; "" when it may be."""
    if event in NEVER:
        return event + repr(arguments)
    if event == "marshal.loads" and not caller.startswith(IMPORTERS):
        return "marshal by " + caller
    if event in ("exec", "compile"):
        name = arguments[0].co_filename if event == "exec" else os.fsdecode(arguments[1] or b"?")
        if not name.startswith((*LIBRARIES, *OWN_CODE)) and not caller.endswith(MAKERS_OF_CLASSES):
            return event + " of " + name + " by " + caller
    if event == "ctypes.dlopen" and "/" in str(arguments[0]) and not str(arguments[0]).startswith((*LIBRARIES, *SYSTEM)):
        return "loaded the library " + str(arguments[0])
    if event == "subprocess.Popen" and list(arguments[1])[1:4] not in SPAWNED:
        return "started " + repr(arguments[1])
    if event in TALKING and arguments[1] is not None and arguments[1][0] not in ("127.0.0.1", "::1"):
        return "connected to " + repr(arguments[1])
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        name, flags = os.fsdecode(arguments[0]), arguments[2] or 0
        if arguments[1] is None and not os.path.isabs(name) and caller.startswith(LIBRARIES):
            # os.open, perhaps beneath an open folder, which the event does not tell: one plain name, for reading
            plain = "/" not in name and name != ".." and not flags & (os.O_WRONLY | os.O_RDWR)
            return "" if plain else "opened by a relative name " + name
        place = os.path.abspath(name)
        if flags & (os.O_WRONLY | os.O_RDWR) and not place.startswith((*WRITABLE, "/dev/null")):
            return "" if "__pycache__" in place else "wrote to " + place
        if place != "/" and not place.startswith((*LIBRARIES, *READABLE, *WRITABLE, *SYSTEM)):
            return "opened " + place
    return ""


def watch(event, arguments):
    if event in WATCHED:
        frame = sys._getframe()
        why = finding(event, arguments, frame.f_back.f_code.co_filename if frame.f_back else "the interpreter")
        if why:
            report(why)


TALKING = ("socket.connect", "socket.sendto", "socket.sendmsg")
WATCHED = {*NEVER, *TALKING, "marshal.loads", "exec", "compile", "ctypes.dlopen", "subprocess.Popen", "open"}
sys.addaudithook(watch)
'''
"""Wants SOURCE, OWN_CODE, READABLE and WRITABLE (where things may lie) and ``report``."""

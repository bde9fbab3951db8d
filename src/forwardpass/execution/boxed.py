"""Where a worker process begins: the box is closed before anything large is imported.

Libraries start threads as they are imported, and Landlock binds only the thread that asks for it and those it makes.
"""

import sys

from forwardpass.execution.box import close_box


def main() -> None:
    """``python -m forwardpass.execution.boxed PARENT MEMORY_BYTES MARKS FOLDER``, started by ``process.py`` only."""
    parent, memory_max_bytes = (int(argument) for argument in sys.argv[1:3])
    for missing in close_box([sys.argv[-1]], memory_max_bytes=memory_max_bytes, parent=parent):
        print(missing, file=sys.stderr)
    from forwardpass.execution.worker import live

    live()


if __name__ == "__main__":
    main()

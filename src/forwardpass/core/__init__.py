"""Words and contracts everything else is built from; imports nothing of ours and no library but the standard one."""

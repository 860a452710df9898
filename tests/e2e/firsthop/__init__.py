"""The end-to-end harness: network namespaces, the programs under test, callers, and what watches them.

Every test has namespaces of its own with the programs' usual ports inside, so tests never meet each other or what
else runs on the machine. Nothing here sleeps for a fixed time in place of an event: everything that waits has a
condition and a deadline.
"""

"""Signals that the tests' own parent ignores, as a shell does for its background jobs and nohup for all."""
import signal

# A program started by exec keeps ignoring what its parent ignores, and gets the default of what its parent handles. Those
# that stop a writer in the background are left out: a handler of them would not let it write.
SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
           signal.SIGCHLD)


def restore_for_programs():
    """Programs started from here on get the default of these signals; this process goes on ignoring what it ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

"""The sandbox of commands: bubblewrap, Landlock, the system call filter, protected files."""

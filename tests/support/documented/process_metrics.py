"""Metrics that the library adds: what the process uses, as the system counts it (on Linux)."""

from __future__ import annotations

PROCESS_METRICS = {
    "process_virtual_memory_bytes": ("gauge", "Virtual memory size in bytes."),
    "process_resident_memory_bytes": ("gauge", "Resident memory size in bytes."),
    "process_start_time_seconds": ("gauge", "Start time of the process since the Unix epoch."),
    "process_cpu_seconds_total": ("counter", "User and system CPU time."),
    "process_open_fds": ("gauge", "Open file descriptors."),
    "process_max_fds": ("gauge", "Most file descriptors that may be open."),
}

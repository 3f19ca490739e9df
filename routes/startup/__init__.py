"""The phases of a start, a file each: what each opens in order is closed in reverse."""

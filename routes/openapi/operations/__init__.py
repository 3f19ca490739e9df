"""Tables of operations: what each route is for, takes and answers, a row for each method of a path."""

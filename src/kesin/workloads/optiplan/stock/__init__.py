"""The offcut rack: what it holds, which orders use it, and what the operator does with it."""

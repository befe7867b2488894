"""A furniture workshop's cutting orders, from centimetres to the saw."""

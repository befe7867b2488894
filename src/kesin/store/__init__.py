"""Storage of jobs: the only package that contains SQL or Lua."""

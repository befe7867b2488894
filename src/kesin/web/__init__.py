"""HTTP: the API, sign-in and what runs behind them in one process."""

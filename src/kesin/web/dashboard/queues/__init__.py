"""The page of one queue: filters, lists, actions, bulk runs, CSV export and charts."""

SELECT key AS ord{columns}{same} FROM json_each(:items)

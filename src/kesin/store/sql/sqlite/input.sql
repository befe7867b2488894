SELECT key AS ord{columns} FROM json_each(:items)

SELECT key AS ord, value AS id{same} FROM json_each(:items)

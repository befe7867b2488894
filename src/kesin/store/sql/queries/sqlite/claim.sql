UPDATE job AS j
   SET {assignments}
 WHERE j.id IN (SELECT value FROM json_each(:ids))

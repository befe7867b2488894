UPDATE job AS j
   SET {assignments}
 {chosen}

import { Duration } from "effect"
import type { Settings } from "../wiring/Settings.ts"

/** Nobody waits for a command as for an answer of the service: it may count every credential that there is. */
export const patiently = ({ database, ...settings }: Settings): Settings => ({
  ...settings,
  database: {
    ...database,
    statementTimeout: Duration.max(database.statementTimeout, Duration.minutes(1)),
    deadline: Duration.max(database.deadline, Duration.seconds(65))
  }
})

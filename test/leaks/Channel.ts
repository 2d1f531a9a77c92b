/** Every channel through which data leaves the service. */
export const channels = [
  "bodies",
  "headers",
  "standard output",
  "standard error",
  "spans",
  "metrics",
  "log of PostgreSQL",
  "write-ahead log",
  "data files",
  "dump"
] as const

export type Channel = (typeof channels)[number]

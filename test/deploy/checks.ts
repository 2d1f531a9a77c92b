import type { Check } from "./Check.ts"
import { alerts, promtool } from "./alerts.ts"
import { compose } from "./compose.ts"
import { containerfile } from "./containerfile.ts"
import { dashboard } from "./dashboard.ts"
import { image } from "./image.ts"
import { kubernetes, kustomize } from "./kubernetes.ts"
import { closedPatroni, haproxy, patroni, pgbouncer } from "./postgresql.ts"
import { systemd } from "./systemd.ts"

/** Every check, in the order in which they run. */
export const checks: ReadonlyArray<Check> = [
  containerfile,
  compose,
  kubernetes,
  kustomize,
  systemd,
  alerts,
  promtool,
  dashboard,
  haproxy,
  pgbouncer,
  closedPatroni,
  patroni,
  image
]

import { alerts } from "./alerts.ts"
import type { Check } from "./Check.ts"
import { compose } from "./compose.ts"
import { containerfile } from "./containerfile.ts"
import { dashboard } from "./dashboard.ts"
import { haproxy } from "./haproxy.ts"
import { image } from "./image.ts"
import { kubernetes } from "./kubernetes.ts"
import { kustomize } from "./kustomize.ts"
import { patroni } from "./patroni.ts"
import { pgbouncer } from "./pgbouncer.ts"
import { promtool } from "./promtool.ts"
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
  patroni,
  image
]

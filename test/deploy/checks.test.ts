import { Effect, Result } from "effect"
import type { TestContext } from "vitest"
import { type Mistake, problemsIn } from "./Check.ts"
import { alerts, promtool } from "./alerts.ts"
import { compose } from "./compose.ts"
import { containerfile } from "./containerfile.ts"
import { dashboard } from "./dashboard.ts"
import { image } from "./image.ts"
import { kubernetes, kustomize } from "./kubernetes.ts"
import { closedPatroni, haproxy, patroni, pgbouncer } from "./postgresql.ts"
import { systemd } from "./systemd.ts"
import { assert, describe, it } from "../support/it.ts"

const quick = [containerfile, compose, kubernetes, kustomize, systemd, alerts, promtool, dashboard]
const databases = [haproxy, pgbouncer, closedPatroni, patroni]
/** It takes minutes, which only `npm run check:deploy` spends. */
const images = process.env["npm_lifecycle_event"] === "check:deploy" ? [image] : []

describe.each([...quick, ...databases, ...images])("deploy/$piece", { timeout: 600_000 }, (check) => {
  /** The test is skipped where the check cannot run. */
  const problems = async ({ signal, skip }: TestContext, mistake?: Mistake) => {
    const found = await Effect.runPromise(Effect.result(problemsIn(check, mistake)), { signal })
    return Result.isSuccess(found) ? found.success : skip(found.failure.why)
  }

  it("passes its check", async (context) => {
    assert.deepStrictEqual(await problems(context), [])
  })

  it.for(check.mistakes)("fails its check if %s has, instead of %j, %j (control)", async (mistake, context) => {
    assert.isNotEmpty(await problems(context, mistake))
  })
})

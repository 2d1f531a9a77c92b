import { inspect } from "node:util"
import { Console, Effect } from "effect"
import type { Lease } from "../../src/service/routing/Lease.ts"
import type { OwnStep } from "../../src/domain/routing/Plan.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import type { Channel } from "./Channel.ts"

/** A plan with a step for the key, and a change after which its lease is refused. */
interface Leasable {
  readonly plan: PlannedRequest
  readonly step: OwnStep
  readonly change: Effect.Effect<void>
}

type Use = (given: Leasable) => Effect.Effect<unknown, unknown, Router>

/** Shows a value in every way in which a program may print or log it. */
const show = (what: unknown) =>
  Effect.all(
    [
      Console.log(String(what), JSON.stringify({ what }), inspect({ what }, { depth: 9, showHidden: true })),
      Console.error(what),
      Effect.logError("shown", what),
      Effect.annotateLogs(Effect.logInfo("annotated"), { what }),
      Effect.annotateCurrentSpan({ what, text: String(what) })
    ],
    { discard: true }
  )

/** A plan for the key of a step alone. */
const alone = ({ request }: PlannedRequest, { credential_id }: OwnStep) =>
  Effect.flatMap(Router, ({ plan }) => plan({ ...request, credential_id }))

const leasing =
  <E>(use: (lease: Lease) => Effect.Effect<unknown, E, Router>): Use =>
  ({ plan, step }) =>
    Effect.scoped(Effect.flatMap(Router, (router) => Effect.flatMap(router.lease(plan, step), use)))

/** Runs an attempt that fails in some way, and shows its end. */
const attempting =
  (fail: (lease: Lease) => Effect.Effect<never, unknown, Router>): Use =>
  ({ plan, step }) =>
    Effect.gen(function* () {
      const router = yield* Router
      const attempts = router.run(yield* alone(plan, step), (_step, lease) =>
        lease === undefined ? Effect.die(new Error("no lease")) : Effect.withSpan(fail(lease), "attempt")
      )
      yield* show(yield* Effect.exit(attempts))
    })

const upstreamSays = (lease: Lease) => `Incorrect API key provided: ${lease.text()}.`

/** Uses of a lease by a gateway, by the name of the key in the sweep. None shows the key. */
export const leaseUses: Readonly<Record<string, Use>> = {
  "the key of a lease that is shown": leasing(show),
  "the key of a plan that is shown": ({ plan }) => show(plan),
  "the key of a lease that has ended": (given) =>
    Effect.flatMap(Effect.scoped(Effect.flatMap(Router, ({ lease }) => lease(given.plan, given.step))), (ended) =>
      Effect.andThen(show(ended), Effect.exit(Effect.sync(() => ended.text())).pipe(Effect.flatMap(show)))
    ),
  "the key of a refused lease": ({ change, plan, step }) =>
    Effect.gen(function* () {
      const router = yield* Router
      yield* change
      yield* router.plan(plan.request)
      const refused = yield* Effect.exit(Effect.withSpan(Effect.scoped(router.lease(plan, step)), "refused"))
      if (refused._tag === "Success") return yield* Effect.die(new Error("it was leased"))
      yield* show(refused)
    }),
  "the key of an attempt that is rejected": ({ plan, step }) =>
    Effect.gen(function* () {
      const { redact, run } = yield* Router
      const attempts = run(yield* alone(plan, step), (_step, lease) =>
        Effect.gen(function* () {
          if (lease === undefined) return yield* Effect.die(new Error("no lease"))
          yield* show(redact(upstreamSays(lease), lease))
          return { outcome: { _tag: "Rejected" } as const, value: upstreamSays(lease) }
        })
      )
      yield* show(yield* Effect.exit(Effect.withSpan(attempts, "rejected")))
    }),
  "the key of an attempt that fails": attempting((lease) => Effect.fail({ lease })),
  "the key of an attempt that dies": attempting((lease) => Effect.die(new Error(`with ${lease}`))),
  "the key in the failure of a span": leasing((lease) =>
    Effect.exit(Effect.withSpan(Effect.die(new Error(upstreamSays(lease))), "attempt"))
  )
}

/** Uses that show the key, and the channels in which it appears. */
export const leasePlants: Readonly<Record<string, { readonly into: ReadonlyArray<Channel>; readonly use: Use }>> = {
  "the key of a lease on standard output": {
    into: ["standard output"],
    use: leasing((lease) => Console.log(lease.bytes.toString("hex")))
  },
  "the key of a lease in the log": { into: ["standard error"], use: leasing((lease) => Effect.logTrace(lease.text())) },
  "the key of a lease in a span": {
    into: ["spans"],
    use: leasing((lease) => Effect.annotateCurrentSpan("authorization", `Bearer ${lease.text()}`))
  },
  "the key of an upstream's answer that is not redacted": {
    into: ["standard error"],
    use: leasing((lease) => Effect.logWarning(upstreamSays(lease)))
  }
}

import { inspect } from "node:util"
import { Console, Effect } from "effect"
import type { Lease } from "../../src/service/routing/Lease.ts"
import type { RoutingRequest } from "../../src/domain/routing/RoutingRequest.ts"
import type { RequestPlan } from "../../src/service/routing/RouterRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import type { Channel } from "./Channel.ts"

/** A request for the key alone, its plan, and a change after which it is not leased. */
interface Leasable {
  readonly plan: RequestPlan
  readonly request: RoutingRequest
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

const leaseOf = (request: RoutingRequest) =>
  Effect.gen(function* () {
    const { attempt } = yield* (yield* Router).nextAttempt(request, [])
    return attempt?.lease ?? (yield* Effect.die(new Error("no lease")))
  })

const leasing =
  <E>(use: (lease: Lease) => Effect.Effect<unknown, E, Router>): Use =>
  ({ request }) =>
    Effect.scoped(Effect.flatMap(leaseOf(request), use))

/** Runs an attempt that fails in some way, and shows its end. */
const attempting =
  (fail: (lease: Lease) => Effect.Effect<never, unknown, Router>): Use =>
  ({ request }) =>
    Effect.gen(function* () {
      const router = yield* Router
      const attempts = router.run(request, (_step, lease) =>
        lease === undefined ? Effect.die(new Error("no lease")) : Effect.withSpan(fail(lease), "attempt")
      )
      yield* show(yield* Effect.exit(attempts))
    })

const upstreamSays = (lease: Lease) => `Incorrect API key provided: ${lease.text()}.`

/** Uses of a lease by a gateway, by the name of the key in the sweep. None shows the key. */
export const leaseUses: Readonly<Record<string, Use>> = {
  "the key of a lease that is shown": leasing(show),
  "the key of a plan that is shown": ({ plan }) => show(plan),
  "the key of a lease that has ended": ({ request }) =>
    Effect.flatMap(Effect.scoped(leaseOf(request)), (ended) =>
      Effect.andThen(show(ended), Effect.exit(Effect.sync(() => ended.text())).pipe(Effect.flatMap(show)))
    ),
  "the key of a refused lease": ({ change, request }) =>
    Effect.gen(function* () {
      yield* change
      const refused = yield* Effect.exit(Effect.withSpan(Effect.scoped(leaseOf(request)), "refused"))
      if (refused._tag === "Success") return yield* Effect.die(new Error("it was leased"))
      yield* show(refused)
    }),
  "the key of an attempt that is rejected": ({ request }) =>
    Effect.gen(function* () {
      const { redact, run } = yield* Router
      const attempts = run(request, (_step, lease) =>
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

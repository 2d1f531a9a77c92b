import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Exit } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { OpenRoutes } from "../../src/gateway/OpenRoutes.ts"
import { type Edit, plantedUrl } from "../domain/routing/plantedIn.ts"
import { anyActs, type Code, fakeRouter, planOf, runAtOnce, runInTurn } from "./routesModel.ts"

const runs = { arbitrary: { runs: 300 }, timeout: 120_000 }

describe("the routes that gateways drive over HTTP", () => {
  it.effect.prop(
    "answer in any interleaving of opens, reports, repetitions, deletions and expiries as a reference does",
    [anyActs],
    ([acts]) => runInTurn(OpenRoutes, acts),
    runs
  )

  it.effect.prop(
    "have one open attempt at most, and one answer to a report, however many ask at once and leave",
    [anyActs],
    ([acts]) => runAtOnce(OpenRoutes, acts),
    runs
  )

  it.effect("are 10,000 at most; one that ends makes room", () => {
    const { layer } = fakeRouter()
    return Effect.gen(function* () {
      const { abandon, open } = yield* OpenRoutes.make
      const one = open(Effect.succeed(planOf([{ provider: "azure", refused: false }])))
      const opened = yield* Effect.replicateEffect(one, 10_000)
      assert.instanceOf(yield* Effect.flip(one), ServiceUnavailable)
      yield* abandon(opened[0]?.id ?? "")
      yield* one
      assert.instanceOf(yield* Effect.flip(one), ServiceUnavailable)
    }).pipe(Effect.provide(layer), Effect.scoped)
  })

  const faults: ReadonlyArray<readonly [fault: string, ...edit: Edit]> = [
    ["a repeated report counts", "if (last?.n === n) {", "if (last?.n === n && false) {"],
    ["any attempt may be reported", "open === undefined || n !== route.opened", "open === undefined"],
    ["an ended route goes on", "if (route.hasEnded) return new NotFound()", ""],
    ["the answer of a last report is forgotten", "ended.set(id, route)", ""],
    ["routes do not expire", "if (now < entry[1].until) break", "break"],
    ["routes expire early", "if (now < entry[1].until) break", "if (now < entry[1].until - 1) break"],
    ["a lease outlives its attempt", "Scope.close(open.scope, Exit.void)", "Effect.void"],
    ["an attempt is not reported", "open.lease === undefined ? Effect.void : report", "true ? Effect.void : report"],
    [
      "a route that ended meanwhile opens an attempt",
      "if (route.hasEnded) return Effect.succeed({",
      "if (false) return Effect.succeed({"
    ]
  ]
  const samples = Effect.runSync(Arbitrary.sampleEffect(anyActs, { count: 100, seed: "planted" }))

  /** Whether some run notices that a text of the source is replaced. */
  const isFound = Effect.fnUntraced(function* (edits: ReadonlyArray<Edit>) {
    const source = new URL("../../src/gateway/OpenRoutes.ts", import.meta.url)
    const names = ["effect", "node:crypto"].map((name) => [name, import.meta.resolve(name)] as const)
    const files = [
      "domain/Errors",
      "domain/routing/Moment",
      "service/repeatInBackground",
      "service/routing/Router"
    ].map((file) => {
      const name = `../${file}.ts`
      return [name, new URL(name, source).href] as const
    })
    const url = plantedUrl("../../gateway/OpenRoutes.ts", edits, Object.fromEntries([...names, ...files]))
    const { OpenRoutes: planted } = yield* Effect.promise(() => import(url) as Promise<{ OpenRoutes: Code }>)
    for (const acts of samples) {
      for (const run of [runInTurn, runAtOnce]) {
        if (Exit.isFailure(yield* Effect.exit(run(planted, acts)))) return true
      }
    }
    return false
  })

  it.effect.each(faults)("would not be if %s (control)", ([, ...edit]) =>
    Effect.map(isFound([edit]), (found) => assert.isTrue(found))
  )

  it.effect("are as they are without a fault (control of the controls)", () =>
    Effect.map(isFound([]), (found) => assert.isFalse(found))
  )
})

import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as OfProcess from "../../src/management/OfProcess.ts"
import { Management } from "../../src/management/Management.ts"
import { Draining } from "../../src/port/Draining.ts"
import { KeyringReload } from "../../src/port/KeyringReload.ts"
import { Readiness } from "../../src/port/Readiness.ts"

const conditionWhile = (draining: boolean) =>
  Effect.flatMap(Management, ({ condition }) => condition).pipe(
    Effect.provide(
      Layer.provide(OfProcess.layer, [
        Layer.succeed(Readiness, { problems: Effect.succeed([]), warnings: Effect.succeed(["a warning"]) }),
        Layer.mock(KeyringReload, {}),
        Layer.succeed(Draining, () => draining)
      ])
    )
  )

describe("what the management port shows of a process", () => {
  it.effect("is what readiness found, and that it is stopping once it is asked to stop", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* conditionWhile(false), { problems: [], warnings: ["a warning"] })
      assert.deepStrictEqual(yield* conditionWhile(true), { problems: ["the service is stopping"], warnings: [] })
    })
  )
})

import { describe, it } from "@effect/vitest"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { planLaws } from "./planLaws.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"

const plan = plannerOf({ ...Planning, ...Pooling })

describe("a plan", () => {
  for (const [number, { law, title }] of Object.entries(planLaws)) {
    it.prop(`${title} (${number})`, [anyRoutingCase], ([given]) => law(plan, given), propertyRuns)
  }
})

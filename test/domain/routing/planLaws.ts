/** Node's comparison is four times as fast as Chai's for equal plans. */
import { deepStrictEqual } from "node:assert/strict"
import { assert } from "@effect/vitest"
import type { Credential } from "../../../src/domain/Credential.ts"
import type { Exclusion, Plan, Step } from "../../../src/domain/routing/Plan.ts"
import type { Endpoint, RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { inWords, planByTheBook } from "./planByTheBook.ts"
import { changed, type Planner, plainRow, type Row, type RoutingCase } from "./RoutingCase.ts"

/** Throws if a planner breaks a law in a case. */
export type Law = (plan: Planner, routingCase: RoutingCase) => void

const withRequest = (routingCase: RoutingCase, changes: Partial<RoutingCase["request"]>): RoutingCase => ({
  ...routingCase,
  request: { ...routingCase.request, ...changes }
})

const withRows = (routingCase: RoutingCase, change: (row: Row) => Row): RoutingCase => ({
  ...routingCase,
  rows: routingCase.rows.map(change)
})

const withEndpoints = (routingCase: RoutingCase, changes: Partial<Endpoint>): RoutingCase =>
  withRequest(routingCase, {
    targets: routingCase.request.targets.map(({ endpoint, provider }) => ({
      provider,
      endpoint: { ...endpoint, ...changes }
    }))
  })

/** A case with at least one credential, and the credential to which the law applies. */
const picked = (routingCase: RoutingCase) => {
  const rows = routingCase.rows.length > 0 ? routingCase.rows : [plainRow("openai", 0)]
  const row = rows[routingCase.pick % rows.length] ?? plainRow("openai", 0)
  const replacedBy = (replacement: Row): RoutingCase => ({
    ...routingCase,
    rows: rows.map((other) => (other === row ? replacement : other))
  })
  return { row, replacedBy }
}

const sharedSteps = ({ steps }: Plan): ReadonlyArray<string> =>
  steps.flatMap(({ _tag, provider }) => (_tag === "Shared" ? [provider] : []))
const ownSteps = ({ steps }: Plan) => steps.flatMap((step) => (step._tag === "Own" ? [step] : []))
const ownIds = (plan: Plan) => ownSteps(plan).map(({ credential_id }) => credential_id)
const verdictsOf = ({ providers }: Plan) => providers.flatMap(({ credentials }) => credentials)
const verdictOn = (plan: Plan, { credential }: Row) => {
  const [verdict, other] = verdictsOf(plan).filter(({ credential_id }) => credential_id === credential.id)
  assert.isUndefined(other)
  assert(verdict !== undefined)
  return verdict
}
const phaseOf = (step: Step) => (step._tag === "Shared" ? 1 : step.section === "prioritized" ? 0 : 2)
const endpointOf = ({ request }: RoutingCase, { provider }: Step) => {
  const target = request.targets.find((one) => one.provider === provider)
  assert(target !== undefined)
  return target.endpoint
}
const credentialOf = ({ rows }: RoutingCase, id: Credential["id"]) => {
  const row = rows.find(({ credential }) => credential.id === id)
  assert(row !== undefined)
  return row.credential
}
const assertAscending = (numbers: ReadonlyArray<number>) =>
  deepStrictEqual(
    numbers,
    numbers.toSorted((a, b) => a - b)
  )
const forEveryone = { disabled: false, allowed_api_key_hashes: null, allowed_user_ids: null }

/** For each reason of an exclusion, the change of the row or of the request that removes the reason. */
const remedies: Readonly<Record<Exclusion["reason"], Partial<Row> | Partial<Credential> | Partial<RoutingRequest>>> = {
  seal: { seal: "verified" },
  parked: { availability: { _tag: "Free" } },
  no_token: { cannotSign: false },
  disabled: { disabled: false },
  api_key_not_allowed: { allowed_api_key_hashes: null },
  user_not_allowed: { allowed_user_ids: null },
  model_not_allowed: { allowed_models: null },
  region: { host: "global" },
  zdr: { requires_zdr: false }
}

/** The case without the cause of a reason. Ignores members that a part does not have. */
const remedied = (routingCase: RoutingCase, row: Row, reason: Exclusion["reason"]): RoutingCase => {
  const remedy = remedies[reason]
  const mended = { ...changed(row, remedy as Partial<Credential>), ...(remedy as Partial<Row>) }
  return withRequest(
    withRows(routingCase, (other) => (other === row ? mended : other)),
    remedy as Partial<RoutingRequest>
  )
}

export const planLaws: Readonly<Record<string, { readonly title: string; readonly law: Law }>> = {
  Q1: {
    title: "equals the plan of a reference made from the tables of the documentation",
    law: (plan, routingCase) => {
      const made = plan(routingCase)
      deepStrictEqual(inWords(made), planByTheBook(routingCase))
      deepStrictEqual(inWords({ ...made, steps: plan.walk(routingCase) }), planByTheBook(routingCase))
    }
  },
  Q2: {
    title: "does not depend on the order of rows",
    law: (plan, routingCase) => {
      const turned = routingCase.rows.map((_, index, rows) => rows[(index + routingCase.pick) % rows.length] as Row)
      for (const rows of [turned, turned.toReversed()]) {
        deepStrictEqual(plan({ ...routingCase, rows }), plan(routingCase))
      }
    }
  },
  Q3: {
    title: "gains no own step when a credential's lists are narrowed or it declares no zero data retention",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      const narrowed = <A>(list: ReadonlyArray<A> | null) => list?.slice(0, routingCase.pick % (list.length + 1)) ?? []
      const before = ownIds(plan(replacedBy(row)))
      const { allowed_api_key_hashes, allowed_models, allowed_user_ids } = row.credential
      for (const change of [
        { allowed_models: narrowed(allowed_models) },
        { allowed_user_ids: narrowed(allowed_user_ids) },
        { allowed_api_key_hashes: narrowed(allowed_api_key_hashes) },
        { declared_zdr: false }
      ]) {
        assert.includeMembers(before, ownIds(plan(replacedBy(changed(row, change)))))
      }
    }
  },
  Q4: {
    title: "has a provider's prioritized keys before shared capacity before its fallback keys",
    law: (plan, routingCase) => {
      for (const target of routingCase.request.targets) {
        const alone = plan(withRequest(routingCase, { targets: [target] }))
        assertAscending(alone.steps.map(phaseOf))
        assertAscending(verdictsOf(alone).flatMap(({ position }) => position ?? []))
        const { steps } = plan(routingCase)
        assertAscending(steps.filter(({ provider }) => provider === target.provider).map(phaseOf))
      }
    }
  },
  Q5: {
    title: "has no shared step if an enabled credential of the caller is_required, whatever model, host, ZDR or health",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      const required = changed(row, { ...forEveryone, is_required: true, is_fallback: false })
      const everyKeyParked = (one: RoutingCase) =>
        withRows(one, (other) => ({ ...other, availability: { _tag: "Parked", cause: "rejected", until: 1 } }))
      const free = withRequest(withEndpoints(replacedBy(required), { shared: true }), {
        host: "global",
        requires_zdr: false,
        model: "in no list"
      })
      for (const one of [replacedBy(required), free, everyKeyParked(free)]) {
        assert.notInclude(sharedSteps(plan(one)), row.credential.provider)
      }
    }
  },
  Q6: {
    title: "has no shared step if an enabled credential of the caller is_byok_only and covers the model, else one",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      const flags = { ...forEveryone, is_byok_only: true, is_required: false, is_fallback: false }
      const only = { ...changed(row, flags), seal: "verified" } as const
      const { rows } = replacedBy(only)
      const alone = { ...routingCase, rows: rows.filter((other) => other === only) }
      const allowing = withRequest(withEndpoints(alone, { shared: true }), { host: "global", requires_zdr: false })
      const { allowed_models } = only.credential
      const isCovered = allowed_models === null || allowed_models.includes(routingCase.request.model)
      assert.strictEqual(sharedSteps(plan(allowing)).includes(row.credential.provider), !isCovered)
    }
  },
  Q7: {
    title: "has the same shared steps for every health",
    law: (plan, routingCase) => {
      const shared = sharedSteps(plan(routingCase))
      const availabilities: ReadonlyArray<Row["availability"]> = [
        { _tag: "Free" },
        { _tag: "OnTrial", until: 1 },
        { _tag: "Parked", cause: "leaked", until: null }
      ]
      for (const availability of availabilities) {
        deepStrictEqual(sharedSteps(plan(withRows(routingCase, (row) => ({ ...row, availability })))), shared)
      }
    }
  },
  Q8: {
    title: "has one verdict on every row, with a position in the steps if and only if nothing excludes it",
    law: (plan, routingCase) => {
      const made = plan(routingCase)
      assert.strictEqual(verdictsOf(made).length, routingCase.rows.length)
      const places: ReadonlyArray<{ of: string; isFree: boolean; position: number | null }> = [
        ...routingCase.rows.map((row) => {
          const { credential_id, exclusions, position } = verdictOn(made, row)
          return { of: credential_id, isFree: exclusions.length === 0, position }
        }),
        ...made.providers.map(({ provider, shared: { position, removed } }) => {
          return { of: provider, isFree: removed.length === 0, position }
        })
      ]
      for (const { isFree, of, position } of places) {
        assert.strictEqual(position !== null, isFree)
        if (position === null) continue
        const step = made.steps[position]
        assert.strictEqual(step?._tag === "Own" ? step.credential_id : step?.provider, of)
      }
      assert.strictEqual(places.filter(({ isFree }) => isFree).length, made.steps.length)
    }
  },
  Q9: {
    title: "gives every reason: a credential with a single one is used once its cause is gone",
    law: (plan, routingCase) => {
      for (const row of routingCase.rows) {
        const [only, other] = verdictOn(plan(routingCase), row).exclusions
        if (only === undefined || other !== undefined) continue
        const { exclusions, position } = verdictOn(plan(remedied(routingCase, row, only.reason)), row)
        deepStrictEqual(exclusions, [])
        assert.isNotNull(position)
      }
    }
  },
  Q10: {
    title:
      "has no shared step of a provider with a row whose policy is unknown: altered, unavailable, or of an unknown key or format",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      const seals = ["altered", "unknown_key", "unsupported"] as const
      for (const seal of seals) {
        for (const disabled of [false, true]) {
          const made = plan(replacedBy({ ...changed(row, { disabled }), seal }))
          assert.notInclude(sharedSteps(made), row.credential.provider)
          assert.notInclude(ownIds(made), row.credential.id)
        }
      }
    }
  },
  Q11: {
    title: "uses for a ZDR request only endpoints with ZDR, or keys that declare ZDR if the endpoint honours that",
    law: (plan, routingCase) => {
      const needing = withRequest(routingCase, { requires_zdr: true })
      for (const step of plan(needing).steps) {
        const { kind, zdr } = endpointOf(needing, step)
        const declared = step._tag === "Own" ? credentialOf(needing, step.credential_id).declared_zdr : null
        assert.notStrictEqual(declared, false)
        assert.isTrue(zdr || (declared === true && kind !== "private" && kind !== "video"))
      }
    }
  },
  Q12: {
    title:
      "uses on a regional host only endpoints in the region, or keys that declare the region if the endpoint honours that",
    law: (plan, routingCase) => {
      for (const host of ["europe", "us"] as const) {
        const there = withRequest(routingCase, { host })
        for (const step of plan(there).steps) {
          const { kind, region } = endpointOf(there, step)
          const declared = step._tag === "Own" ? credentialOf(there, step.credential_id).declared_region : null
          assert.isTrue(declared === null || declared === "global" || declared === host)
          assert.isTrue(region === host || (declared === host && kind === "standard"))
        }
      }
    }
  },
  Q13: {
    title: "judges regions and ZDR independently",
    law: (plan, routingCase) => {
      const reasons = (one: RoutingCase, reason: string) =>
        plan(one).providers.map(({ credentials, shared }) => [
          credentials.map(({ exclusions }) => exclusions.some((exclusion) => exclusion.reason === reason)),
          shared.removed.some((removal) => removal.reason === reason)
        ])
      const otherZdr = withRequest(
        withRows(routingCase, (row) =>
          changed(row, { declared_zdr: [null, true, false][routingCase.pick % 3] ?? null })
        ),
        { requires_zdr: !routingCase.request.requires_zdr }
      )
      deepStrictEqual(reasons(otherZdr, "region"), reasons(routingCase, "region"))
      const otherRegion = withRequest(
        withRows(routingCase, (row) =>
          changed(row, { declared_region: (["us", "europe"] as const)[routingCase.pick % 2] ?? null })
        ),
        { host: (["global", "us", "europe"] as const)[routingCase.pick % 3] ?? "global" }
      )
      deepStrictEqual(reasons(otherRegion, "zdr"), reasons(routingCase, "zdr"))
    }
  },
  Q14: {
    title: "is the same for a credential that declares global and one that declares nothing",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      const [none, global] = ([null, "global"] as const).map((declared_region) =>
        inWords(plan(replacedBy(changed(row, { declared_region }))))
      )
      deepStrictEqual(none, global)
    }
  },
  Q15: {
    title: "offers a credential with an empty list for nothing, and with null for everything",
    law: (plan, routingCase) => {
      const { replacedBy, row } = picked(routingCase)
      for (const [list, reason] of [
        ["allowed_models", "model_not_allowed"],
        ["allowed_user_ids", "user_not_allowed"],
        ["allowed_api_key_hashes", "api_key_not_allowed"]
      ] as const) {
        for (const value of [[], null]) {
          const { exclusions } = verdictOn(plan(replacedBy(changed(row, { [list]: value }))), row)
          assert.strictEqual(
            exclusions.some((exclusion) => exclusion.reason === reason),
            value !== null
          )
        }
      }
    }
  },
  Q16: {
    title: "goes through the phases or through the providers, with the same steps",
    law: (plan, routingCase) => {
      const byok = plan(withRequest(routingCase, { strategy: "byok_first" })).steps
      const provider = plan(withRequest(routingCase, { strategy: "provider_first" })).steps
      assertAscending(byok.map(phaseOf))
      assertAscending(
        provider.map((step) => routingCase.request.targets.findIndex((one) => one.provider === step.provider))
      )
      assert.sameDeepMembers([...byok], [...provider])
    }
  },
  Q17: {
    title: "has the steps of a provider that it would have without the other targets",
    law: (plan, routingCase) => {
      const { steps } = plan(routingCase)
      for (const target of routingCase.request.targets) {
        const alone = {
          ...routingCase,
          rows: routingCase.rows.filter(({ credential }) => credential.provider === target.provider)
        }
        deepStrictEqual(
          plan(withRequest(alone, { targets: [target] })).steps,
          steps.filter(({ provider }) => provider === target.provider)
        )
      }
    }
  },
  Q18: {
    title: "has a time to retry exactly if it has no step and some key is excluded only by a parking with an end",
    law: (plan, routingCase) => {
      const parkAll = (row: Row): Row => ({
        ...row,
        availability: {
          _tag: "Parked",
          cause: "rejected",
          until: [null, 2_000, 1_000][row.credential.sort_order] ?? null
        }
      })
      const barren = withEndpoints(routingCase, { shared: false })
      for (const one of [routingCase, barren, withRows(barren, parkAll)]) {
        const made = plan(one)
        const endOf = (row: Row) => {
          const [only, other] = verdictOn(made, row).exclusions
          return other === undefined && only?.reason === "parked" ? only.until : null
        }
        const waits = made.steps.length === 0 && one.rows.some((row) => endOf(row) !== null)
        assert.strictEqual(made.retry_at !== null, waits)
        const at = made.retry_at
        if (at === null) continue
        const back = one.rows.filter((row) => (endOf(row) ?? Infinity) <= at)
        const then = plan(
          withRows(one, (row) => (back.includes(row) ? { ...row, availability: { _tag: "OnTrial", until: 1 } } : row))
        )
        assert.strictEqual(at, Math.min(...one.rows.map((row) => endOf(row) ?? Infinity)))
        assert.sameMembers(
          ownSteps(then).flatMap(({ credential_id, on_trial }) => (on_trial ? [credential_id] : [])),
          back.map(({ credential }) => credential.id)
        )
      }
    }
  },
  Q32: {
    title: "has the steps that planning again, without what was tried, finds one by one",
    law: (plan, routingCase) => deepStrictEqual(plan.walk(routingCase), plan(routingCase).steps)
  }
}

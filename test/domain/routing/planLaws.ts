/** In long runs of equal plans Node compares four times as fast as Chai. */
import { deepStrictEqual } from "node:assert/strict"
import { assert } from "@effect/vitest"
import type { Credential } from "../../../src/domain/Credential.ts"
import type { Endpoint } from "../../../src/domain/routing/Endpoint.ts"
import type { Exclusion, Plan, Step } from "../../../src/domain/routing/Plan.ts"
import type { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { inWords, planByTheBook } from "./planByTheBook.ts"
import { changed, type Planner, plainRow, type Row, type RoutingCase } from "./RoutingCase.ts"

/** Throws if a planner breaks a law in a case. */
export type Law = (plan: Planner, given: RoutingCase) => void

const withRequest = (given: RoutingCase, changes: Partial<RoutingCase["request"]>): RoutingCase => ({
  ...given,
  request: { ...given.request, ...changes }
})

const withRows = (given: RoutingCase, change: (row: Row) => Row): RoutingCase => ({
  ...given,
  rows: given.rows.map(change)
})

const withEndpoints = (given: RoutingCase, changes: Partial<Endpoint>): RoutingCase =>
  withRequest(given, {
    targets: given.request.targets.map(({ endpoint, provider }) => ({
      provider,
      endpoint: { ...endpoint, ...changes }
    }))
  })

/** The case with at least one credential, and that one of them which the law is about. */
const picked = (given: RoutingCase) => {
  const rows = given.rows.length > 0 ? given.rows : [plainRow("openai", 0)]
  const row = rows[given.pick % rows.length] ?? plainRow("openai", 0)
  const replacedBy = (replacement: Row): RoutingCase => ({
    ...given,
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

/** What removes a reason for which a credential is not used: a change of its row, or of the request. */
const remedies: Readonly<Record<Exclusion["reason"], Partial<Row> | Partial<Credential> | Partial<RoutingRequest>>> = {
  seal: { seal: "verified" },
  parked: { availability: { _tag: "Free" } },
  disabled: { disabled: false },
  api_key_not_allowed: { allowed_api_key_hashes: null },
  user_not_allowed: { allowed_user_ids: null },
  model_not_allowed: { allowed_models: null },
  region: { host: "global" },
  zdr: { requires_zdr: false }
}

/** The case without the cause of a reason; members that a part does not have change nothing there. */
const remedied = (given: RoutingCase, row: Row, reason: Exclusion["reason"]): RoutingCase => {
  const remedy = remedies[reason]
  const mended = { ...changed(row, remedy as Partial<Credential>), ...(remedy as Partial<Row>) }
  return withRequest(
    withRows(given, (other) => (other === row ? mended : other)),
    remedy as Partial<RoutingRequest>
  )
}

export const planLaws: Readonly<Record<string, { readonly title: string; readonly law: Law }>> = {
  Q1: {
    title: "is what a reference interpreter makes of the tables",
    law: (plan, given) => deepStrictEqual(inWords(plan(given)), planByTheBook(given))
  },
  Q2: {
    title: "does not depend on the order of rows",
    law: (plan, given) => {
      const turned = given.rows.map((_, index, rows) => rows[(index + given.pick) % rows.length] as Row)
      for (const rows of [turned, turned.toReversed()]) {
        deepStrictEqual(plan({ ...given, rows }), plan(given))
      }
    }
  },
  Q3: {
    title: "gains no own step when a credential's lists are narrowed or it declares that it retains",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
      const narrowed = <A>(list: ReadonlyArray<A> | null) => list?.slice(0, given.pick % (list.length + 1)) ?? []
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
    law: (plan, given) => {
      for (const target of given.request.targets) {
        const alone = plan(withRequest(given, { targets: [target] }))
        assertAscending(alone.steps.map(phaseOf))
        assertAscending(verdictsOf(alone).flatMap(({ position }) => position ?? []))
        const { steps } = plan(given)
        assertAscending(steps.filter(({ provider }) => provider === target.provider).map(phaseOf))
      }
    }
  },
  Q5: {
    title: "has no shared step if an enabled credential of the caller is_required, whatever model, host, ZDR or health",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
      const required = changed(row, { ...forEveryone, is_required: true, is_fallback: false })
      const everyKeyParked = (one: RoutingCase) =>
        withRows(one, (other) => ({ ...other, availability: { _tag: "Parked", cause: "rejected", until: 1 } }))
      const free = withRequest(withEndpoints(replacedBy(required), { shared: true }), {
        host: "global",
        requires_zdr: false,
        model: "of another list"
      })
      for (const one of [replacedBy(required), free, everyKeyParked(free)]) {
        assert.notInclude(sharedSteps(plan(one)), row.credential.provider)
      }
    }
  },
  Q6: {
    title: "has no shared step if an enabled credential of the caller is_byok_only and covers the model, else one",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
      const flags = { ...forEveryone, is_byok_only: true, is_required: false, is_fallback: false }
      const only = { ...changed(row, flags), seal: "verified" } as const
      const { rows } = replacedBy(only)
      const alone = { ...given, rows: rows.filter((other) => other === only) }
      const allowing = withRequest(withEndpoints(alone, { shared: true }), { host: "global", requires_zdr: false })
      const { allowed_models } = only.credential
      const isCovered = allowed_models === null || allowed_models.includes(given.request.model)
      assert.strictEqual(sharedSteps(plan(allowing)).includes(row.credential.provider), !isCovered)
    }
  },
  Q7: {
    title: "has the same shared steps for every health",
    law: (plan, given) => {
      const shared = sharedSteps(plan(given))
      const availabilities: ReadonlyArray<Row["availability"]> = [
        { _tag: "Free" },
        { _tag: "Probing" },
        { _tag: "Parked", cause: "leaked", until: null }
      ]
      for (const availability of availabilities) {
        deepStrictEqual(sharedSteps(plan(withRows(given, (row) => ({ ...row, availability })))), shared)
      }
    }
  },
  Q8: {
    title: "has one verdict on every row, with a position in the steps if and only if nothing excludes it",
    law: (plan, given) => {
      const made = plan(given)
      assert.strictEqual(verdictsOf(made).length, given.rows.length)
      const places: ReadonlyArray<{ of: string; isFree: boolean; position: number | null }> = [
        ...given.rows.map((row) => {
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
    law: (plan, given) => {
      for (const row of given.rows) {
        const [only, other] = verdictOn(plan(given), row).exclusions
        if (only === undefined || other !== undefined) continue
        const { exclusions, position } = verdictOn(plan(remedied(given, row, only.reason)), row)
        deepStrictEqual(exclusions, [])
        assert.isNotNull(position)
      }
    }
  },
  Q10: {
    title: "has no shared step of a provider with a row that is altered, unknown or unsupported",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
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
    title: "of a ZDR request uses only keys that declare it where that counts, and endpoints that have it",
    law: (plan, given) => {
      const needing = withRequest(given, { requires_zdr: true })
      for (const step of plan(needing).steps) {
        const { kind, zdr } = endpointOf(needing, step)
        const declared = step._tag === "Own" ? credentialOf(needing, step.credential_id).declared_zdr : null
        assert.notStrictEqual(declared, false)
        assert.isTrue(zdr || (declared === true && kind !== "private" && kind !== "video"))
      }
    }
  },
  Q12: {
    title: "of a request on a regional host uses only keys that declare it where that counts, and endpoints there",
    law: (plan, given) => {
      for (const host of ["europe", "us"] as const) {
        const there = withRequest(given, { host })
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
    law: (plan, given) => {
      const reasons = (one: RoutingCase, reason: string) =>
        plan(one).providers.map(({ credentials, shared }) => [
          credentials.map(({ exclusions }) => exclusions.some((exclusion) => exclusion.reason === reason)),
          shared.removed.some((removal) => removal.reason === reason)
        ])
      const otherZdr = withRequest(
        withRows(given, (row) => changed(row, { declared_zdr: [null, true, false][given.pick % 3] ?? null })),
        { requires_zdr: !given.request.requires_zdr }
      )
      deepStrictEqual(reasons(otherZdr, "region"), reasons(given, "region"))
      const otherRegion = withRequest(
        withRows(given, (row) =>
          changed(row, { declared_region: (["us", "europe"] as const)[given.pick % 2] ?? null })
        ),
        { host: (["global", "us", "europe"] as const)[given.pick % 3] ?? "global" }
      )
      deepStrictEqual(reasons(otherRegion, "zdr"), reasons(given, "zdr"))
    }
  },
  Q14: {
    title: "is the same for a credential that declares global and one that declares nothing",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
      const [none, global] = ([null, "global"] as const).map((declared_region) =>
        inWords(plan(replacedBy(changed(row, { declared_region }))))
      )
      deepStrictEqual(none, global)
    }
  },
  Q15: {
    title: "offers a credential with an empty list for nothing, and with null for everything",
    law: (plan, given) => {
      const { replacedBy, row } = picked(given)
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
    law: (plan, given) => {
      const byok = plan(withRequest(given, { strategy: "byok_first" })).steps
      const provider = plan(withRequest(given, { strategy: "provider_first" })).steps
      assertAscending(byok.map(phaseOf))
      assertAscending(provider.map((step) => given.request.targets.findIndex((one) => one.provider === step.provider)))
      assert.sameDeepMembers([...byok], [...provider])
    }
  },
  Q17: {
    title: "has the steps of a provider that it would have without the other targets",
    law: (plan, given) => {
      const { steps } = plan(given)
      for (const target of given.request.targets) {
        const alone = { ...given, rows: given.rows.filter(({ credential }) => credential.provider === target.provider) }
        deepStrictEqual(
          plan(withRequest(alone, { targets: [target] })).steps,
          steps.filter(({ provider }) => provider === target.provider)
        )
      }
    }
  },
  Q18: {
    title: "says when to retry if and only if a parking with an end is all that keeps a key out and no step is left",
    law: (plan, given) => {
      const parkAll = (row: Row): Row => ({
        ...row,
        availability: {
          _tag: "Parked",
          cause: "rejected",
          until: [null, 2_000, 1_000][row.credential.sort_order] ?? null
        }
      })
      const barren = withEndpoints(given, { shared: false })
      for (const one of [given, barren, withRows(barren, parkAll)]) {
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
          withRows(one, (row) => (back.includes(row) ? { ...row, availability: { _tag: "Probing" } } : row))
        )
        assert.strictEqual(at, Math.min(...one.rows.map((row) => endOf(row) ?? Infinity)))
        assert.sameMembers(
          ownSteps(then).flatMap(({ credential_id, probing }) => (probing ? [credential_id] : [])),
          back.map(({ credential }) => credential.id)
        )
      }
    }
  }
}

import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Schema } from "effect"
import type { Credential } from "../../../src/domain/Credential.ts"
import * as Pasts from "../../../src/domain/routing/Past.ts"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { ApiKeyHash, CredentialId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { Explanation } from "../../../src/domain/routing/Explanation.ts"
import { exclusionReasons, type SharedReason } from "../../../src/domain/routing/Plan.ts"
import { explanationOf, makeNearMiss } from "../../../src/domain/routing/explanationOf.ts"
import {
  anyRoutingCase,
  type Around,
  changed,
  plainCase,
  plannerOf,
  type RoutingCase,
  type Row
} from "./RoutingCase.ts"
import { assert, describe, it } from "../../support/it.ts"

const plan = plannerOf({ ...Pasts, ...Planning, ...Pooling })
const encode = Schema.encodeSync(Explanation)

const workspace_id = WorkspaceId.make("019ad5a0-0000-7000-8000-000000000020")

const explain = (routingCase: RoutingCase) => {
  const poolOfProvider = (provider: string) =>
    Pooling.poolOf(routingCase.rows.filter(({ credential }) => credential.provider === provider))
  const gradual = explanationOf({ ...routingCase.request, workspace_id }, plan(routingCase), poolOfProvider)
  const explanation = { ...gradual, providers: Array.from(gradual.providers) }
  const encoded = encode(explanation)
  const body: unknown = JSON.parse(JSON.stringify({ data: explanation }))
  assert.deepStrictEqual(body, { data: encoded }, "the body is what the contract's schema encodes")
  return encoded
}

const until = Date.UTC(2026, 10, 20, 11, 45, 23, 400)
const parked = (cause: "rate_limited" | "quota_exhausted" | "forbidden" | "rejected") =>
  ({ availability: { _tag: "Parked", cause, until } }) as const
const hashes = ["c", "d"].map((digit) => ApiKeyHash.make(digit.repeat(64)))
const id = "019ad5a0-0000-7000-8000-000000000010"
const retains = "the request requires ZDR, which the endpoint does not have"

/** A reason, the differences of the only credential and of the rest from the plain case, the message, and other members. */
type Reason = readonly [
  reason: string,
  changes: Partial<Credential>,
  around: Around,
  message: string,
  more?: Readonly<Record<string, unknown>>
]

const only = (changes: Partial<Credential>, around: Around) => {
  const [provider] = explain(plainCase([changes], around)).providers
  assert(provider?.credentials[0] !== undefined)
  return { excluded: provider.credentials[0].excluded, removed: provider.shared.removed }
}

/** A reason, its message and the unusual members of the case, for a title, and then the rest. */
const titled = ([reason, changes, around, message, more = {}]: Reason) =>
  [reason, message, { ...changes, ...around }, changes, around, more] as const

const seals = [
  ["altered", "its row was altered after it was sealed"],
  ["unknown_key", "the keyring does not have the key that it is sealed with"],
  ["unsupported", "this version does not know the format that it is sealed in"]
] as const
const parkedMessages = [
  ["rate_limited", "the upstream limited its rate"],
  ["quota_exhausted", "its quota at the upstream is exhausted"],
  ["forbidden", "the upstream refused the model to the key"],
  ["rejected", "the upstream rejected the key"]
] as const

describe("the reason why a credential is not used", () => {
  const cases: ReadonlyArray<Reason> = [
    [
      "no_token",
      {},
      { cannotSign: true },
      "its key cannot sign a token, and no other form of it may leave the process"
    ],
    ["disabled", { disabled: true }, {}, "it is disabled"],
    [
      "api_key_not_allowed",
      { allowed_api_key_hashes: hashes },
      {},
      "allowed_api_key_hashes has 2 API keys, not this one"
    ],
    [
      "api_key_not_allowed",
      { allowed_api_key_hashes: hashes.slice(1) },
      { api_key_hash: null },
      "allowed_api_key_hashes has 1 API key, and the request has none"
    ],
    ["user_not_allowed", { allowed_user_ids: ["a", "b", "c"] }, {}, "allowed_user_ids has 3 users, not this one"],
    ["user_not_allowed", { allowed_user_ids: [] }, {}, "allowed_user_ids is empty: it matches no user"],
    [
      "model_not_allowed",
      { allowed_models: ["b/one", "b/two"] },
      { model: "c/one" },
      "allowed_models has 2 models, not this one"
    ],
    [
      "model_not_allowed",
      { allowed_models: ["one"] },
      { model: "c/one" },
      "allowed_models has 1 model, not this one",
      { hint: "it has one: a slug needs its vendor" }
    ],
    ["model_not_allowed", { allowed_models: [] }, {}, "allowed_models is empty: it matches no model"],
    ["region", {}, { host: "us" }, "it declares no region, and the endpoint is not recorded in us"],
    ["region", { declared_region: "europe" }, { host: "us" }, "it declares europe, and the host is us"],
    [
      "region",
      { declared_region: "us" },
      { host: "us", kind: "video" },
      "the endpoint is not recorded in us, and this kind of endpoint does not honour declared_region"
    ],
    ["zdr", {}, { requires_zdr: true }, retains],
    ["zdr", { declared_zdr: false }, { requires_zdr: true }, "the request requires ZDR, which it declares not to have"],
    [
      "zdr",
      { declared_zdr: true },
      { requires_zdr: true, kind: "private" },
      `${retains}, and this kind of endpoint does not honour declared_zdr`
    ],
    ...seals.map(([seal, message]): Reason => ["seal", {}, { seal }, message]),
    ...parkedMessages.map(([cause, message]): Reason => {
      const said = `${message}; it is tried again at 2026-11-20T11:45:24Z`
      return ["parked", {}, parked(cause), said, { cause, until: "2026-11-20T11:45:23.400Z" }]
    }),
    [
      "parked",
      {},
      { availability: { _tag: "Parked", cause: "leaked", until: null } },
      "the key is known to have leaked; it is not used until it is replaced",
      { cause: "leaked", until: null }
    ]
  ]
  it.for(cases.map(titled))("%s has the message %j in a case with %j", ([reason, message, , changes, around, more]) => {
    const [excluded, other] = only(changes, around).excluded
    assert.isUndefined(other)
    assert.deepInclude(excluded, { reason, message, ...more } as never)
  })
})

describe("the reason why shared capacity is not used", () => {
  const cases: ReadonlyArray<Reason> = [
    ["none_there", {}, { shared: false }, "the gateway has no capacity of its own there"],
    ["region", {}, { host: "europe" }, "the endpoint is not recorded in europe"],
    ["zdr", {}, { requires_zdr: true }, retains],
    ["is_required", { is_required: true, name: "Production" }, {}, `${id} (Production) forbids it for every model`],
    ["is_byok_only", { is_byok_only: true }, {}, `${id} forbids it for this model`],
    ...seals.map(([seal, message]): Reason => ["seal", {}, { seal }, `${id} may forbid it: ${message}`])
  ]
  it.for(cases.map(titled))("%s has the message %j in a case with %j", ([reason, message, , changes, around]) => {
    const [removed, other] = only(changes, around).removed
    assert.isUndefined(other)
    assert.deepInclude(removed, { reason, message } as never)
  })
})

describe("an explanation", () => {
  it("hints at nearly matching models only for the first 100 credentials (R4)", () => {
    const [plain] = plainCase([{ allowed_models: ["gpt-4o"] }]).rows
    assert(plain !== undefined)
    const rows = Array.from({ length: 120 }, (_, sort_order) =>
      changed(plain, { id: CredentialId.make(randomUUID()), sort_order })
    )
    const { providers } = explain({ ...plainCase([], { model: "openai/gpt-4o" }), rows })
    const excluded = providers.flatMap(({ credentials }) => credentials.flatMap(({ excluded }) => excluded))
    assert.lengthOf(excluded, 120)
    assert.lengthOf(JSON.stringify(excluded).match(/"hint"/g) ?? [], 100)
  })

  it("makes the verdicts of a provider only when they are asked for, so that others may run between them", () => {
    const made: Array<string> = []
    const providers = (["azure", "openai"] as const).map((provider) => ({
      provider,
      shared: { position: null, removed: [] },
      get credentials() {
        made.push(provider)
        return []
      }
    }))
    const { request } = plainCase([])
    const gradual = explanationOf({ ...request, workspace_id }, { steps: [], providers, retry_at: null }, () => [])
    const seen = Array.from(gradual.providers, ({ provider }) => `${provider} after ${made.join()}`)
    assert.deepStrictEqual(seen, ["azure after azure", "openai after azure,openai"])
  })

  it("shows shared capacity as a step, and the time to retry", () => {
    const shared = explain(plainCase([]))
    assert.deepStrictEqual(shared.steps, [{ kind: "shared", provider: "openai" }])
    assert.deepStrictEqual(shared.providers[0]?.shared, { position: 0, removed: [] })
    const waiting = explain(plainCase([{ is_required: true }], parked("rejected")))
    assert.strictEqual(waiting.retry_at, "2026-11-20T11:45:23.400Z")
  })

  it.prop(
    "has the steps, positions and reasons of the plan, with names and labels",
    [anyRoutingCase],
    ([{ rows, ...rest }]) => {
      const named = (row: Row, index: number) => changed(row, { name: `name ${index}`, label: `sk-...${index}` })
      const routingCase = { ...rest, rows: rows.map(named) }
      const { providers, steps } = plan(routingCase)
      const explained = explain(routingCase)
      const shown = new Map(routingCase.rows.map(({ credential: { id, label, name } }) => [id, { name, label }]))
      assert.deepStrictEqual<unknown>(
        explained.steps,
        steps.map((step) => {
          if (step._tag === "Shared") return { kind: "shared", provider: step.provider }
          const { credential_id, on_trial, provider, region, section } = step
          return {
            kind: "own",
            provider,
            section,
            credential_id,
            ...shown.get(credential_id),
            region,
            on_trial
          }
        })
      )
      assert.deepStrictEqual<unknown>(
        explained.providers.map(({ credentials, shared }) => [
          credentials.map(({ credential_id, excluded, label, name, position }) => [
            { credential_id, label, name },
            position,
            excluded.map(({ reason }) => reason)
          ]),
          [shared.position, shared.removed.map(({ reason }) => reason)]
        ]),
        providers.map(({ credentials, shared }) => [
          credentials.map(({ credential_id, exclusions, position }) => [
            { credential_id, ...shown.get(credential_id) },
            position,
            exclusions.map(({ reason }) => reason)
          ]),
          [shared.position, shared.removed.map(({ reason }) => reason)]
        ])
      )
    },
    { arbitrary: { runs: 200 } }
  )
})

describe("the hint at a model that nearly matches an allow list (E18)", () => {
  it.each([
    ["openai/gpt-4o", ["OpenAI/GPT-4o"], "it has OpenAI/GPT-4o: case and blanks count"],
    ["openai/gpt-4o", [" openai/gpt-4o"], "it has  openai/gpt-4o: case and blanks count"],
    ["openai/gpt-4o", ["gpt-4o"], "it has gpt-4o: a slug needs its vendor"],
    ["gpt-4o", ["openai/gpt-4o"], "it has openai/gpt-4o: the request's model lacks its vendor"],
    ["openai/gpt-4o", ["azure/gpt-4o"], "it has azure/gpt-4o: the vendor is another one"],
    ["openai/gpt-4o:free", ["openai/gpt-4o"], "it has openai/gpt-4o: a variant is a model of its own"],
    ["openai/gpt-4o", ["openai/gpt-4o:free"], "it has openai/gpt-4o:free: a variant is a model of its own"],
    ["openai/gpt-4o:free", ["GPT-4o"], "it has GPT-4o: vendor and variant count"],
    ["openai/gpt-4o", ["openai/*"], "it has openai/*: * is no wildcard"],
    ["openai/gpt-4o", ["*"], "it has *: * is no wildcard"],
    ["openai/gpt-4o", ["anthropic/*", "OpenAI/GPT*"], "it has OpenAI/GPT*: * is no wildcard"],
    [
      "openai/gpt-4o",
      ["openai/gpt-4, openai/gpt-4o"],
      "it has openai/gpt-4, openai/gpt-4o: a comma does not separate slugs"
    ],
    ["openai/gpt-4o", ["gpt-4o", "OPENAI/gpt-4o"], "it has OPENAI/gpt-4o: case and blanks count"]
  ])("for model %s and the list %j is %j", (model, allowed, hint) => {
    assert.strictEqual(makeNearMiss(model)(allowed), hint)
  })

  it.each([[[]], [["openai/gpt-4"]], [["openai/"]], [[""]], [["anthropic/*"]], [["openai/gpt-4,openai/o1"]]])(
    "is absent for the list %j",
    (allowed) => {
      assert.isUndefined(makeNearMiss("openai/gpt-4o")(allowed))
    }
  )
})

const page = readFileSync(join(import.meta.dirname, "../../../docs/api.md"), "utf8")
const [, section = ""] = /^## Why was my key not used\?\n(.*?)^## /ms.exec(page) ?? []
const removalReasons = {
  region: true,
  zdr: true,
  seal: true,
  none_there: true,
  is_required: true,
  is_byok_only: true
} satisfies Record<SharedReason["reason"], true>

describe("the table of reasons in docs/api.md (Q9)", () => {
  it("says of every reason whether it is against a credential, shared capacity or both", () => {
    const rows = Array.from(section.matchAll(/^\| `(\w+)` +\| (.*?) *\| (.*?) *\|$/gm))
    const namesWith = (column: number) => rows.filter((row) => row[column] !== "").map(([, name]) => name)
    assert.sameMembers(namesWith(2), [...exclusionReasons])
    assert.sameMembers(namesWith(3), Object.keys(removalReasons))
  })
})

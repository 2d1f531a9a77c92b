import { inspect } from "node:util"
import { Effect, Redacted, Result, Schema } from "effect"
import { ChangeableField, decodeCredentialChanges } from "../../src/domain/CredentialChanges.ts"
import { issuesOf } from "../../src/domain/Issue.ts"
import { decodeNewCredential, NewCredential } from "../../src/domain/NewCredential.ts"
import { Provider } from "../../src/domain/Provider.ts"
import { defaults } from "../support/http/Bodies.ts"
import { accessKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { acceptedBody, elementOf, givenKey, integer } from "../support/memory/arbitraries.ts"
import slugs from "../vectors/providers.json" with { type: "json" }
import { assert, describe, it } from "../support/it.ts"

const decode = Schema.decodeUnknownResult(NewCredential, { errors: "all" })

/** The issues of a body, as `path: message`; empty if it is accepted. */
const issues = (body: unknown): ReadonlyArray<string> =>
  Result.match(decode(body), {
    onFailure: ({ issue }) => issuesOf(issue).map(({ message, path }) => `${path.join(".")}: ${message}`),
    onSuccess: () => []
  })

const accepted = (body: unknown) => {
  const { key, material: _, ...rest } = Schema.decodeUnknownSync(NewCredential)(body)
  return { ...rest, key: Redacted.value(key) }
}

const plain = { provider: "cohere", key: "fake-key" } as const
const hash = "0123456789abcdef".repeat(4)
const uuid = "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88"
const notText = "must not contain U+0000 or half of a surrogate pair"
const notList = "must be a list of strings or null"
const notFlag = "must be true or false"
const notRegion = "must be global, europe, us or null"
const notHash = "must be 64 lowercase hexadecimal characters"
const notProvider = "must be a known provider slug"

const brief = (member: string, value: unknown) => {
  if (value === undefined) return `without ${member}`
  const written = JSON.stringify(value)
  const start = `with ${member} set to ${written.slice(0, 40)}`
  if (written.length <= 40) return start
  return `${start}... (${Array.isArray(value) ? "a list" : "text"} of length ${Reflect.get(Object(value), "length")})`
}

/** The issues of an update of one member, in the same form. */
const issuesOfUpdate = (member: string, value: unknown) =>
  Effect.runSync(
    Effect.match(decodeCredentialChanges({ [member]: value }), {
      onFailure: ({ error }) => error.metadata.issues.map(({ message, path }) => `${path.join(".")}: ${message}`),
      onSuccess: () => []
    })
  )
const isChangeable = Schema.is(ChangeableField)

describe("an invalid body (sections 4.1 and 8)", () => {
  const cases = [
    // key (rule 1, D21, D25)
    ["key", undefined, "key: is required"],
    ["key", null, "key: must be a string"],
    ["key", 1, "key: must be a string"],
    ["key", "", "key: must not be empty"],
    // key (D45), on every way in
    ["key", "\u200bsk-1", "key: must not have white space, a control character or a format character at either end"],
    ["key", JSON.stringify(Array.from({ length: 1001 }, () => 0)), "key: must have at most 1000 values if it is JSON"],
    ["key", "a\0b", `key: ${notText}`],
    ["key", "\ude00b", `key: ${notText}`],
    // provider (rule 1, section 2.2, D21, D27)
    ["provider", undefined, "provider: is required"],
    ["provider", null, `provider: ${notProvider}`],
    ["provider", "", `provider: ${notProvider}`],
    ["provider", "unheard-of", `provider: ${notProvider}`],
    ["provider", "Cohere", `provider: ${notProvider}; the nearest is cohere`],
    ["provider", "gemini", `provider: ${notProvider}; the nearest is google-ai-studio`],
    ["provider", "bedrock", `provider: ${notProvider}; the nearest is amazon-bedrock`],
    ["provider", "vertex_ai", `provider: ${notProvider}; the nearest is google-vertex`],
    ["provider", "Claude", `provider: ${notProvider}; the nearest is anthropic`],
    ["provider", "azure-openai", `provider: ${notProvider}; the nearest is azure`],
    ["provider", "together_ai", `provider: ${notProvider}; the nearest is together`],
    ["provider", "fireworks-ai", `provider: ${notProvider}; the nearest is fireworks`],
    ["provider", "grok", `provider: ${notProvider}; the nearest is xai`],
    // name (section 8, D20, D25)
    ["name", "x".repeat(256), "name: must have at most 255 characters"],
    ["name", "\u{1f600}".repeat(256), "name: must have at most 255 characters"],
    ["name", 1, "name: must be a string or null"],
    ["name", "\0", `name: ${notText}`],
    // workspace_id (D21)
    ["workspace_id", null, "workspace_id: must be a UUID"],
    ["workspace_id", "default", "workspace_id: must be a UUID"],
    // allowed_api_key_hashes (section 8, D22)
    ["allowed_api_key_hashes", hash, `allowed_api_key_hashes: ${notList}`],
    ["allowed_api_key_hashes", [], "allowed_api_key_hashes: must have at least 1 element"],
    ["allowed_api_key_hashes", Array(101).fill(hash), "allowed_api_key_hashes: must have at most 100 elements"],
    ["allowed_api_key_hashes", [hash, null], "allowed_api_key_hashes.1: must be a string"],
    ["allowed_api_key_hashes", [1], "allowed_api_key_hashes.0: must be a string"],
    ["allowed_api_key_hashes", [hash.slice(1)], `allowed_api_key_hashes.0: ${notHash}`],
    ["allowed_api_key_hashes", [`${hash}0`], `allowed_api_key_hashes.0: ${notHash}`],
    ["allowed_api_key_hashes", [`${hash}\n`], `allowed_api_key_hashes.0: ${notHash}`],
    ["allowed_api_key_hashes", [`g${hash.slice(1)}`], `allowed_api_key_hashes.0: ${notHash}`],
    ["allowed_api_key_hashes", [hash, hash.toUpperCase()], `allowed_api_key_hashes.1: ${notHash}`],
    // allowed_models and allowed_user_ids (section 8, D25, D46)
    ["allowed_models", "a", `allowed_models: ${notList}`],
    ["allowed_models", Array(101).fill("a"), "allowed_models: must have at most 100 elements"],
    ["allowed_models", ["a", null], "allowed_models.1: must be a string"],
    ["allowed_models", ["a", "b", "c", 3], "allowed_models.3: must be a string"],
    ["allowed_models", ["a", "\0"], `allowed_models.1: ${notText}`],
    ["allowed_models", ["a", "b".repeat(256)], "allowed_models.1: must have at most 255 characters"],
    ["allowed_user_ids", ["u".repeat(256)], "allowed_user_ids.0: must have at most 255 characters"],
    ["allowed_user_ids", {}, `allowed_user_ids: ${notList}`],
    ["allowed_user_ids", ["\0"], `allowed_user_ids.0: ${notText}`],
    ["allowed_user_ids", Array(101).fill("a"), "allowed_user_ids: must have at most 100 elements"],
    ["allowed_user_ids", [["a"]], "allowed_user_ids.0: must be a string"],
    ["allowed_user_ids", ["\ud800"], `allowed_user_ids.0: ${notText}`],
    // declared_region and declared_zdr
    ["declared_region", "asia", `declared_region: ${notRegion}`],
    ["declared_region", "eu", `declared_region: ${notRegion}`],
    ["declared_region", "Europe", `declared_region: ${notRegion}`],
    ["declared_region", 1, `declared_region: ${notRegion}`],
    ...["true", 0, 1, "", []].map(
      (value) => ["declared_zdr", value, "declared_zdr: must be true, false or null"] as const
    ),
    // flags (D21)
    ...["disabled", "is_required", "is_fallback", "is_byok_only"].flatMap((flag) =>
      [null, "true", "false", 0, 1, "", [], {}].map((value) => [flag, value, `${flag}: ${notFlag}`] as const)
    )
  ] as const
  for (const [member, value, expected] of cases) {
    const isUpdate = isChangeable(member) && value !== undefined
    it(`${brief(member, value)} is refused by create${isUpdate ? " and by update" : ""}`, () => {
      const body: Record<string, unknown> = { ...plain, [member]: value }
      if (value === undefined) Reflect.deleteProperty(body, member)
      assert.deepStrictEqual(issues(body), [expected])
      if (isUpdate) {
        assert.deepStrictEqual(issuesOfUpdate(member, value), [expected])
      }
    })
  }

  it.for([[null], [true], [1], ["text"], [[]], [[plain]]])("is refused if it is %j, not an object (D8)", ([body]) => {
    assert.deepStrictEqual(issues(body), [": must be a JSON object"])
  })

  it("with several wrong members gets an issue for each (D7)", () => {
    const body = { key: "", name: 1, allowed_models: [1, "a", null], declared_zdr: "no", disabled: null }
    assert.sameMembers(Array.from(issues(body)), [
      "key: must not be empty",
      "provider: is required",
      "name: must be a string or null",
      "allowed_models.0: must be a string",
      "allowed_models.2: must be a string",
      "declared_zdr: must be true, false or null",
      "disabled: must be true or false"
    ])
  })
})

describe("an unknown provider", () => {
  const slugs = Provider.literals
  it.prop(
    "is refused with a suggestion of the nearest known slug, if it resembles one",
    [
      elementOf(slugs.filter(({ length }) => length > 4)),
      integer(0, 40),
      elementOf(["", "x", "-", "é", " "]),
      integer(0, 1)
    ],
    ([slug, at, put, cut]) => {
      const given = slug.slice(0, at).toUpperCase() + put + slug.slice(at + cut)
      if (slugs.some((known) => known === given)) return
      const [said = ""] = issues({ ...plain, provider: given })
      const [, named = ""] = /^provider: must be a known provider slug; the nearest is (\S+)$/.exec(said) ?? []
      assert.include(slugs, named)
      const isAsNear = named === slug || given.toLowerCase() !== slug
      assert.isTrue(isAsNear, `${given}: ${named}`)
    }
  )

  it.for(["x", "ai", "unheard-of", "constructor", "openai".repeat(1000), "sk-openai-0123456789"])(
    "is refused without a suggestion if it resembles no slug: %s",
    (provider) => assert.deepStrictEqual(issues({ ...plain, provider }), [`provider: ${notProvider}`])
  )
})

describe("a body at a limit (section 8)", () => {
  const cases = [
    ["key", "k"],
    ["key", "\u{1f600}"],
    ["key", "k".repeat(250_000)],
    ["name", ""],
    ["name", "x".repeat(255)],
    ["name", "\u{1f600}".repeat(255)],
    ["allowed_api_key_hashes", [hash]],
    ["allowed_api_key_hashes", Array(100).fill(hash)],
    ["allowed_models", []],
    ["allowed_models", [""]],
    ["allowed_models", Array(100).fill("m".repeat(255))],
    ["allowed_user_ids", []],
    ["allowed_user_ids", Array(100).fill("\u{1f600}".repeat(255))],
    ["provider", "anthropic/2"]
  ] as const
  for (const [member, value] of cases) {
    it(`${brief(member, value)} is accepted unchanged`, () => {
      assert.deepEqual<unknown>(accepted({ ...plain, [member]: value })[member], value)
      if (isChangeable(member)) assert.deepStrictEqual(issuesOfUpdate(member, value), [])
    })
  }

  it("with an uppercase workspace_id is accepted, and decodes it to lowercase", () => {
    assert.strictEqual(accepted({ ...plain, workspace_id: uuid.toUpperCase() }).workspace_id, uuid)
  })
})

describe("provider (section 2.2, D27)", () => {
  it("is one of the 115 lowercase slugs of the specification, some with one path-style suffix", () => {
    assert.strictEqual(new Set(slugs).size, 115)
    assert.sameMembers([...Provider.literals], slugs)
    for (const provider of Provider.literals) {
      assert.match(provider, /^[a-z0-9-]+(\/[a-z0-9-]+)?$/)
      assert.strictEqual(accepted({ ...plain, provider }).provider, provider)
    }
  })
})

describe("an optional member (section 4.1 rule 5, D20, D21, D22)", () => {
  const withDefaults = { ...plain, ...defaults }

  it("has its default when omitted", () => {
    assert.deepEqual(accepted(plain), {
      ...plain,
      name: null,
      disabled: false,
      is_fallback: false,
      is_required: false,
      is_byok_only: false,
      allowed_api_key_hashes: null,
      allowed_models: null,
      allowed_user_ids: null,
      declared_region: null,
      declared_zdr: null
    })
  })

  it("defaults to null or false, so a repeated create may omit or send it (F18)", () => {
    for (const value of Object.values(defaults)) assert.include([null, false], value)
  })

  it.for(Object.entries(defaults).flatMap(([member, value]) => (value === null ? [member] : [])))(
    "%s may be null, which equals omitting it in a create and is accepted in an update",
    (member) => {
      assert.deepEqual(accepted({ ...plain, [member]: null }), withDefaults)
      assert.deepStrictEqual(issuesOfUpdate(member, null), [])
    }
  )
})

describe("undeclared or repeated members (D13)", () => {
  it.for([
    ['{"provider":"cohere","key":"fake-key","id":"x","label":null,"created_at":{},"sort_order":-1,"":0}'],
    ['{"provider":"cohere","key":"fake-key","__proto__":{"is_fallback":1,"name":"x"},"constructor":null}']
  ])("are ignored if undeclared: %s", ([body]) => {
    assert.deepEqual(accepted(JSON.parse(body ?? "")), accepted(plain))
  })

  it.for([
    ["is_byok_onyl", "is_byok_only"],
    ["allowedApiKeyHashes", "allowed_api_key_hashes"],
    ["allowed_model", "allowed_models"],
    ["disable", "disabled"],
    ["Workspace_ID", "workspace_id"]
  ])("are refused if close to a declared one, so that no restriction is lost: %s", ([name = "", nearest]) => {
    const expected = [`${name}: unknown member; the nearest is ${nearest}`]
    assert.deepStrictEqual(issues({ ...plain, [name]: true, added_later: 1 }), expected)
  })

  it("do not hide other faults if close to a declared one, which is not called missing as well (D7)", () => {
    const others = { provider: "nobody", disabled: "yes", allowed_models: [1] }
    const { key: _, ...withoutKey } = { ...plain, ...others }
    const refused = { withKey: issues({ ...plain, ...others }), withMiss: issues({ ...withoutKey, keys: "fake-key" }) }
    assert.lengthOf(refused.withKey, 3)
    assert.deepStrictEqual(refused.withMiss, ["keys: unknown member; the nearest is key", ...refused.withKey])
  })

  it("do not supply required members if they are in __proto__", () => {
    assert.deepStrictEqual(issues(JSON.parse('{"__proto__":{"provider":"cohere","key":"fake-key"}}')), [
      "key: is required",
      "provider: is required"
    ])
  })

  it("count with their last value if repeated", () => {
    const body: unknown = JSON.parse('{"provider":"cohere","key":"first","key":"fake-key","name":"x","name":null}')
    assert.deepEqual(accepted(body), accepted(plain))
  })
})

describe("flags (section 4.1 rules 2 and 3, D31)", () => {
  const byokOnly = "is_byok_only: cannot be combined with is_fallback"
  const required = "is_required: cannot be combined with is_fallback"
  it.for([
    [false, false, false],
    [false, false, true],
    [false, true, false],
    [false, true, true],
    [true, false, false]
  ])(
    "are accepted if is_fallback is %j, is_required %j and is_byok_only %j",
    ([is_fallback, is_required, is_byok_only]) => {
      assert.deepStrictEqual(issues({ ...plain, is_fallback, is_required, is_byok_only }), [])
    }
  )

  it.for([
    [true, false, true, [byokOnly]],
    [true, true, false, [required]],
    [true, true, true, [byokOnly, required]]
  ] as const)(
    "are refused if is_fallback is %j, is_required %j and is_byok_only %j: %j",
    ([is_fallback, is_required, is_byok_only, expected]) => {
      assert.deepStrictEqual(issues({ ...plain, is_fallback, is_required, is_byok_only }), expected)
    }
  )
})

describe("declared_region and the key (section 4.1, D28, D29, D30)", () => {
  const mismatch = ["declared_region: must match the region of the key"]
  const noRegion = [
    "declared_region: must be global or null for a key without a region: only a JSON object with api_key and region declares another"
  ]
  const unavailable = ["declared_region: must be global or null for this provider"]
  const malformed = [
    "key: must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
  ]
  const material = (region: string) => `{"api_key":"fake-key","region":"${region}"}`
  const keys = {
    "fake-key": undefined,
    '{"api_key":"fake-key"}': undefined,
    [material("global")]: "global",
    [material("europe")]: "europe",
    [material("eu")]: "europe",
    [material("us")]: "us"
  }

  type Case = readonly [provider: string, key: string, declared_region: string | null, expected: ReadonlyArray<string>]
  const cases = ["openai", "fireworks"].flatMap((provider): ReadonlyArray<Case> => [
    ...Object.entries(keys).flatMap(([key, region = "global"]) =>
      [null, "global", "europe", "us"].map((declared): Case => {
        const fits = declared === null || declared === region
        return [provider, key, declared, fits ? [] : key.includes("region") ? mismatch : noRegion]
      })
    ),
    [provider, material("asia"), null, malformed],
    [provider, "{", "us", malformed]
  ])
  const all: ReadonlyArray<Case> = [
    ...cases,
    ["azure", "fake-key", null, []],
    ["azure", "fake-key", "global", []],
    ["azure", "fake-key", "europe", []],
    ["azure", "fake-key", "us", []],
    ["azure", material("us"), "europe", []],
    ["azure", "{", "us", []],
    ["cohere", "fake-key", null, []],
    ["cohere", "fake-key", "global", []],
    ["cohere", "fake-key", "europe", unavailable],
    ["cohere", "fake-key", "us", unavailable],
    ["cohere", material("us"), null, []],
    ["cohere", material("us"), "us", unavailable],
    ["azure", '[{"api_key":"fake-key"', "us", []],
    ["amazon-bedrock", "fake-key", "us", unavailable],
    ["google-vertex", "fake-key", "europe", unavailable]
  ]
  it.for(all.filter(([, , , expected]) => expected.length === 0))(
    "are accepted for provider %s, key %j and declared_region %j",
    ([provider, key, declared_region]) => {
      assert.deepStrictEqual(issues({ provider, key, declared_region }), [])
    }
  )

  it.for(all.filter(([, , , expected]) => expected.length > 0))(
    "are refused for provider %s, key %j and declared_region %j: %j",
    ([provider, key, declared_region, expected]) => {
      assert.deepStrictEqual(issues({ provider, key, declared_region }), expected)
    }
  )

  it("are checked together with the flags, and all issues are reported", () => {
    const body = { ...plain, declared_region: "us", is_fallback: true, is_required: true }
    assert.deepStrictEqual(issues(body), ["is_required: cannot be combined with is_fallback", ...unavailable])
  })
})

describe("any accepted body", () => {
  it.prop("decodes without trimming, sorting, merging or cutting (D23, D26)", [acceptedBody(givenKey)], ([body]) => {
    const { added_later: _, ...given } = body
    const decoded = accepted(body)
    assert.deepEqual({ ...decoded, ...given }, decoded)
  })
})

describe("a key that may sign tokens (D57)", () => {
  const { client_email: _, ...withoutEmail } = serviceAccount
  const members = (...faults: ReadonlyArray<string>) =>
    faults.map((fault) => `key: must be a plain key or a JSON object${fault === "" ? "" : `: ${fault}`}`)
  type Case = readonly [provider: string, name: string, key: unknown, expected: ReadonlyArray<string>]
  const cases: ReadonlyArray<Case> = [
    ...["amazon-bedrock", "amazon-bedrock/claude-on-aws", "claude-on-aws"].flatMap((provider): ReadonlyArray<Case> => [
      [provider, "an access key", accessKey, []],
      [
        provider,
        "an access key with a session token and an unknown member",
        { ...accessKey, sessionToken: "FwoG/+==", more: [1] },
        []
      ],
      [provider, "a plain API key", "ABSKQmVkcm9jaw==", []],
      [provider, "cut JSON", '{"accessKeyId":"AKIA', members("")],
      [provider, "an array that holds an access key", [accessKey], members("")],
      [
        provider,
        "an empty object",
        {},
        members("accessKeyId is required", "secretAccessKey is required", "region is required")
      ]
    ]),
    ["google-vertex", "a service account", serviceAccount, []],
    ["google-vertex", "a plain API key", "AQ.Ab8fake-express-mode", []],
    ["google-vertex", "cut JSON", '{"type":"service_account"', members("")],
    ["google-vertex", "a service account without client_email", withoutEmail, members("client_email is required")],
    ["azure", "cut JSON, a plain key for this provider", '[{"api_key":"fake-key"', []],
    ["xai", "cut JSON, a plain key for this provider", '{"accessKeyId":"AKIA', []]
  ]
  const issuesOfKey = (provider: string, key: unknown) =>
    issues({ provider, key: typeof key === "string" ? key : JSON.stringify(key) })

  it.for(cases.filter(([, , , expected]) => expected.length === 0))(
    "of provider %s is accepted if it is %s",
    ([provider, , key]) => {
      assert.deepStrictEqual(issuesOfKey(provider, key), [])
    }
  )

  it.for(cases.filter(([, , , expected]) => expected.length > 0))(
    "of provider %s is refused with every fault if it is %s",
    ([provider, , key, expected]) => {
      assert.deepStrictEqual(issuesOfKey(provider, key), expected)
    }
  )
})

describe("the label of a key (D56)", () => {
  const azure = [
    { endpoint_url: "https://fake.test", api_key: "sk-0123456789-0123456789-AbCd" },
    { api_key: "sk-other" }
  ]
  it.for([
    [
      "an access key of amazon-bedrock",
      "its accessKeyId",
      "amazon-bedrock",
      JSON.stringify(accessKey),
      accessKey.accessKeyId
    ],
    [
      "a service account",
      "its private_key_id",
      "google-vertex",
      JSON.stringify(serviceAccount),
      serviceAccount.private_key_id
    ],
    [
      "a list of two azure keys",
      "the api_key of the first",
      "azure",
      ` ${JSON.stringify(azure)}`,
      "sk-0123456789-0123456789-AbCd"
    ],
    ["a JSON object of azure", "its api_key", "azure", JSON.stringify(azure[0]), "sk-0123456789-0123456789-AbCd"],
    ["cut JSON of azure", "the whole key", "azure", '[{"api_key":', '[{"api_key":'],
    ["azure JSON with an empty api_key", "the whole key", "azure", '[{"api_key":""}]', '[{"api_key":""}]'],
    ["a plain key of azure", "the whole key", "azure", "sk-plain", "sk-plain"],
    ["a JSON object of openai", "its api_key", "openai", '{"api_key":"sk-inside"}', "sk-inside"],
    [
      "JSON of xai, which takes only plain keys,",
      "the whole key",
      "xai",
      JSON.stringify(accessKey),
      JSON.stringify(accessKey)
    ],
    ["a plain key of amazon-bedrock", "the whole key", "amazon-bedrock", "ABSKQmVkcm9jaw==", "ABSKQmVkcm9jaw=="]
  ] as const)("for %s is made from %s", ([, , provider, key, name]) => {
    const { material } = Schema.decodeUnknownSync(NewCredential)({ provider, key })
    assert.strictEqual(Redacted.value(material.labelSource), name)
  })
})

describe("the material parsed from a key (D28)", () => {
  it("is part of the decoded input, with its secret redacted", () => {
    const key = JSON.stringify({ api_key: "fake-secret", region: "eu" })
    const decoded = Schema.decodeUnknownSync(NewCredential)({ provider: "openai", key })
    assert.deepStrictEqual(
      [Redacted.value(decoded.material.secret), decoded.material.region],
      ["fake-secret", "europe"]
    )
    assert.notInclude(inspect(decoded, { depth: 9 }) + JSON.stringify(decoded), "fake-secret")
  })

  it("is omitted when a client encodes the input", () => {
    const decoded = Schema.decodeUnknownSync(NewCredential)(plain)
    assert.deepEqual(Schema.encodeSync(NewCredential)(decoded), { ...plain, ...defaults })
  })
})

describe("the input of create, in process (section 4.1, D7)", () => {
  it.effect("is refused with at most 100 issues, and with one if it is not an object", function* () {
    const many = Array.from({ length: 100 }, () => 1)
    const refused = yield* Effect.flip(decodeNewCredential({ allowed_models: many, allowed_user_ids: many }))
    assert.lengthOf(refused.error.metadata.issues, 100)
    const { error } = yield* Effect.flip(decodeNewCredential("text"))
    assert.deepStrictEqual([...error.metadata.issues], [{ path: [], message: "must be a JSON object" }])
  })
})

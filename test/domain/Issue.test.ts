import { Arbitrary, Effect, Result, Schema, SchemaIssue, SchemaTransformation } from "effect"
import { type Issue, issuesOf } from "../../src/domain/Issue.ts"
import { nearestWord } from "../../src/domain/nearestWord.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { defaults } from "../support/http/Bodies.ts"
import {
  acceptedBody,
  anyBody,
  canary,
  elementOf,
  json,
  keyMaterial,
  oneOf,
  text
} from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const windowLength = 6

/** Whether a text holds any six consecutive characters of a canary. */
const leaks = (written: string, secret: string) =>
  Array.from({ length: secret.length - windowLength + 1 }, (_, start) =>
    secret.slice(start, start + windowLength)
  ).some((window) => written.includes(window))

const decodeBody = Schema.decodeUnknownResult(NewCredential, { errors: "all" })
const decodeText = Schema.decodeUnknownResult(Schema.fromJsonString(NewCredential), { errors: "all" })

const issuesFrom = (decoded: Result.Result<unknown, Schema.SchemaError>): ReadonlyArray<Issue> =>
  Result.isFailure(decoded) ? issuesOf(decoded.failure.issue) : []

/** A canary, and an input of a form whose every text contains the canary. */
const around = <A>(form: (secret: Arbitrary.Arbitrary<string>) => Arbitrary.Arbitrary<A>) =>
  Arbitrary.flatMap(canary, (secret) => {
    const texts = oneOf(
      Arbitrary.Constant(secret),
      elementOf([` ${secret}`, `\0${secret}`, `${secret}\ud800`, `{"api_key":"${secret}"`, secret.repeat(10)]),
      keyMaterial(Arbitrary.Constant(secret))
    )
    return Arbitrary.map(form(texts), (input) => ({ secret, input }))
  })

const wrongBodies = around((texts) =>
  oneOf<Schema.Json | Record<string, unknown>>(anyBody(texts), json(texts), acceptedBody(texts))
)

/** A body as JSON text, cut short or with a text inserted anywhere. */
const brokenTexts = Arbitrary.map(
  Arbitrary.all({ body: wrongBodies, at: Arbitrary.schema(Schema.Finite), put: text(0, 2) }),
  ({ at, body: { input, secret }, put }) => {
    const written = JSON.stringify(input)
    const cut = Math.abs(Math.trunc(at)) % (written.length + 1)
    return { secret, input: written.slice(0, cut) + put + (put === "" ? "" : written.slice(cut)) }
  }
)

const members = ["provider", "key", "workspace_id", ...Object.keys(defaults)]

/** Whether a path may name a member: one that is declared, or close to one. */
const isNameable = (name: string) =>
  members.includes(name) || nearestWord(name.replace(/([a-z])(?=[A-Z])/g, "$1_"), members) !== undefined

const quote = (issues: ReadonlyArray<Issue>, secret: string) =>
  issues.some(
    ({ message, path }) =>
      leaks(message, secret) || path.some((segment) => typeof segment === "string" && !isNameable(segment))
  )

const runs = { arbitrary: { runs: 300 } }

describe("issues (D7)", () => {
  it.prop(
    "are reported for every refused body, and never quote a value",
    [wrongBodies],
    ([{ input, secret }]) => {
      const decoded = decodeBody(input)
      if (Result.isSuccess(decoded)) return
      const issues = issuesFrom(decoded)
      assert.isNotEmpty(issues)
      for (const { message } of issues)
        assert.match(message, /^(must|is required|cannot be combined with is_fallback|unknown member; the nearest is)/)
      assert.isFalse(quote(issues, secret))
    },
    runs
  )

  it.prop(
    "never quote a body that is not valid JSON",
    [brokenTexts],
    ([{ input, secret }]) => !quote(issuesFrom(decodeText(input)), secret),
    runs
  )

  it.effect("fail the test for quoted values if a message ends with the value (control)", function* () {
    const valueAt = (input: unknown, path: Issue["path"]) =>
      path.reduce((value: unknown, segment) => Reflect.get(Object(value), segment), input)
    const planted = (input: unknown) =>
      issuesFrom(decodeBody(input)).map(({ message, path }) => ({
        path,
        message: `${message}, not ${JSON.stringify(valueAt(input, path))}`
      }))
    const checked = yield* Arbitrary.checkEffect(wrongBodies, ({ input, secret }) => !quote(planted(input), secret))
    assert.strictEqual(checked._tag, "Falsified")
  })

  it.effect("fail the test for quoted values if a path names an undeclared member (control)", function* () {
    const planted = (input: unknown) =>
      Object.keys(Object(input) as object).map((name) => ({ path: [name], message: "is unknown" }))
    const checked = yield* Arbitrary.checkEffect(wrongBodies, ({ input, secret }) => !quote(planted(input), secret))
    assert.strictEqual(checked._tag, "Falsified")
  })

  it("fail the test for quoted values if a message repeats the error of JSON.parse (control)", () => {
    const secret = "canary-0123456789"
    let said = ""
    try {
      JSON.parse(`{"key": ${secret}}`)
    } catch (error) {
      said = String(error)
    }
    assert.isTrue(leaks(said, secret))
  })

  it.for([[""], ["{"], ['{"key":}'], ["undefined"], ['{"provider":"cohere","key":"k"} x']])(
    "for the body %j say that it must be valid JSON (D8)",
    ([input]) => {
      assert.deepStrictEqual(issuesFrom(decodeText(input)), [{ path: [], message: "must be valid JSON" }])
    }
  )

  it("have a path of member names and positions", () => {
    const body = { provider: "cohere", key: "fake-key", allowed_models: ["a", "b", "c", 4] }
    assert.deepStrictEqual(issuesFrom(decodeBody(body)), [{ path: ["allowed_models", 3], message: "must be a string" }])
  })

  it.for([
    ["a general message", "a body that is no object", null, [], "must be a JSON object"],
    [
      "a general message",
      "a member of the wrong type, where the schema has no message",
      { number: "x" },
      ["number"],
      "has the wrong type"
    ],
    [
      "the message of the schema",
      "a member of the wrong type, where the schema has a message",
      { named: 1 },
      ["named"],
      "must be a name"
    ],
    [
      "a general message",
      "a value that a filter without a message refuses",
      { positive: -1 },
      ["positive"],
      "is not allowed"
    ],
    [
      "the message of the schema",
      "an object whose member has a message",
      { around: { named: 1 } },
      ["around", "named"],
      "must be a name"
    ],
    ["a general message", "a value that a transformation refuses", { allowed: 1 }, ["allowed"], "is not allowed"],
    [
      "a general message",
      "a member named by a symbol, of the wrong type",
      { [Symbol.iterator]: 1 },
      [String(Symbol.iterator)],
      "has the wrong type"
    ]
  ] as const)("have %s for %s", ([, , body, path, message]) => {
    const named = Schema.optionalKey(Schema.String.annotate({ message: "must be a name" }))
    const schema = Schema.Struct({
      named,
      number: Schema.optionalKey(Schema.Number),
      positive: Schema.optionalKey(Schema.Number.check(Schema.makeFilter((number) => number > 0))),
      around: Schema.optionalKey(Schema.Struct({ named })),
      allowed: Schema.optionalKey(
        Schema.Number.pipe(
          Schema.decodeTo(
            Schema.Number,
            SchemaTransformation.transformEffect({
              decode: (): Effect.Effect<number, SchemaIssue.Issue> => Effect.fail(new SchemaIssue.InvalidValue()),
              encode: (value: number) => Effect.succeed(value)
            })
          )
        )
      ),
      [Symbol.iterator]: Schema.optionalKey(Schema.String)
    })
    const decoded = Schema.decodeUnknownResult(schema, { errors: "all" })(body)
    assert.deepStrictEqual(issuesFrom(decoded), [{ path, message }])
  })
})

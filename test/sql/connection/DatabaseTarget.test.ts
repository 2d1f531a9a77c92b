import { Arbitrary, Redacted, Schema } from "effect"
import { inspect } from "node:util"
import { Text } from "../../../src/domain/checkInput.ts"
import {
  type DatabaseTarget,
  InvalidDatabaseUrl,
  parseDatabaseUrl
} from "../../../src/sql/connection/DatabaseTarget.ts"
import { assert, describe, it } from "../../support/it.ts"

const parse = (url: string, ca?: string) => parseDatabaseUrl(Redacted.make(url), ca)

const plain = ({ password, ...target }: DatabaseTarget) => ({
  ...target,
  password: password === undefined ? undefined : Redacted.value(password)
})

const local: ReturnType<typeof plain> = {
  host: "localhost",
  port: 5432,
  username: "u",
  database: "d",
  password: undefined,
  tls: undefined
}
const remote = { ...local, host: "db.example.org", tls: { host: "db.example.org", servername: "db.example.org" } }

const refusalOf = (url: string): InvalidDatabaseUrl => {
  try {
    parse(url)
  } catch (error) {
    assert.instanceOf(error, InvalidDatabaseUrl)
    return error
  }
  return assert.fail("was accepted")
}

const form = "must look like postgres://user:password@host:port/database?sslmode=verify-full"
const encoding = "must have its user and password percent-encoded: @ as %40, / as %2F, ? as %3F, # as %23"
const withoutTls = "points to another machine without TLS: add sslmode=verify-full"
const anotherMode = "must have an sslmode of require, verify-ca, verify-full, or disable, allow, prefer on this machine"

describe("a valid database URL", () => {
  it.each<readonly [url: string, target: ReturnType<typeof plain>]>([
    ["postgres://u@localhost/d", local],
    ["postgresql://u@localhost/d", local],
    ["postgres://u@localhost", { ...local, database: "u" }],
    ["postgres://u@localhost/", { ...local, database: "u" }],
    ["postgres://u@/d", local],
    ["postgres://u:p+q@127.0.0.1:6543/d", { ...local, host: "127.0.0.1", port: 6543, password: "p+q" }],
    ["postgres://u:@localhost/d", { ...local, password: "" }],
    ["postgres://u@[::1]:1/d", { ...local, host: "::1", port: 1 }],
    ["postgres://u%40x:p%2F%3A%25@localhost/d%20e", { ...local, username: "u@x", password: "p/:%", database: "d e" }],
    ["postgres://u@localhost/d?host=/run/postgresql", { ...local, host: "/run/postgresql" }],
    ["postgres://u@localhost/d?host=%2Frun%2Fpg%20sql", { ...local, host: "/run/pg sql" }],
    ["postgres://u@%2Frun%2Fpostgresql:5433/d", { ...local, host: "/run/postgresql", port: 5433 }],
    ["postgres://u@localhost/d?sslmode=disable", local],
    ["postgres://u@localhost/d?sslmode=allow", local],
    ["postgres://u@localhost/d?sslmode=prefer", local],
    ["postgres://u@localhost/d?sslmode=require", { ...local, tls: { host: "localhost", servername: "localhost" } }],
    ["postgres://u@127.0.0.1/d?sslmode=require", { ...local, host: "127.0.0.1", tls: { host: "127.0.0.1" } }],
    ["postgres://u@[2001:db8::1]/d?sslmode=require", { ...local, host: "2001:db8::1", tls: { host: "2001:db8::1" } }],
    ["postgres://u@db.example.org/d?sslmode=require", remote],
    ["postgres://u@db.example.org/d?sslmode=verify-ca", remote],
    ["postgres://u@db.example.org/d?sslmode=verify-full", remote],
    ["postgres://u@x/d?sslmode=verify-full&host=db.example.org", remote]
  ])("is parsed into its parts: %s", (url, target) => {
    assert.deepStrictEqual(plain(parse(url)), target)
  })

  it("has the certificate checked against the given authorities in every TLS mode", () => {
    for (const mode of ["require", "verify-ca", "verify-full"]) {
      const { tls } = parse(`postgres://u@db.example.org/d?sslmode=${mode}`, "an authority")
      assert.deepStrictEqual(tls, { ca: "an authority", host: "db.example.org", servername: "db.example.org" })
    }
  })

  it.prop(
    "may have any percent-encoded character in user, password and database",
    { username: Text.check(Schema.isNonEmpty()), password: Text, database: Text.check(Schema.isNonEmpty()) },
    (parts) => {
      const { database, password, username } = parts
      const [user, secret, name] = [username, password, database].map(encodeURIComponent)
      const { tls: _, ...target } = plain(parse(`postgres://${user}:${secret}@localhost/${name}`))
      assert.deepStrictEqual(target, { host: "localhost", port: 5432, username, database, password })
    }
  )
})

describe("an invalid database URL", () => {
  it.each<readonly [url: string, sentence: string]>([
    ["", form],
    ["u@localhost/d", form],
    ["http://u@localhost/d", form],
    ["POSTGRES://u@localhost/d", form],
    ["postgres:u@localhost/d", form],
    [" postgres://u@localhost/d", form],
    ["postgres://u@localhost/d\n", form],
    ["postgres://u:p word@localhost/d", encoding],
    ["postgres://u:p@ss@localhost/d", encoding],
    ["postgres://u:p/w@localhost/d", encoding],
    ["postgres://u@x:p@localhost/d", encoding],
    ["postgres://u:p#w@localhost/d", encoding],
    ["postgres://u:p?w@localhost/d?sslmode=require", encoding],
    ["postgres://u@localhost:/d", form],
    ["postgres://u@localhost:five/d", form],
    ["postgres://u@localhost/d#fragment", form],
    ["postgres://u@localhost/d/e", form],
    ["postgres://u@::1/d", form],
    ["postgres://u@one.example.org,two.example.org/d?sslmode=verify-full", form],
    ["postgres://u@one.example.org:1,two.example.org:2/d?sslmode=verify-full", form],
    ["postgres://localhost/d", "must name a user"],
    ["postgres://:p@localhost/d", "must name a user"],
    ["postgres://u@localhost:0/d", "must have a port from 1 to 65535"],
    ["postgres://u@localhost:65536/d", "must have a port from 1 to 65535"],
    ["postgres://u:100%@localhost/d", "contains a percent sign that does not start an encoded character"],
    ["postgres://%FF@localhost/d", "contains a percent sign that does not start an encoded character"],
    ["postgres://u@db.example.org/d?sslrootcert=/ca.pem", "must not contain sslrootcert: set DATABASE_CA_FILE instead"],
    ["postgres://u@h/d?sslmode=require&channel_binding=require", "must not contain channel_binding: remove it"],
    ["postgres://u@localhost/d?application_name=byok", "must not contain application_name: remove it"],
    [
      "postgres://u@localhost/d?connect_timeout=10",
      "must not contain connect_timeout: set DATABASE_CONNECT_TIMEOUT instead"
    ],
    ["postgres://u@localhost/d?options=-c", "must not contain options: remove it"],
    ["postgres://u@localhost/d?constructor=1", "may contain only the parameters sslmode and host"],
    ["postgres://u@localhost/d?password=p", "may contain only the parameters sslmode and host"],
    ["postgres://u@db.example.org/d?sslmode=no-verify", anotherMode],
    ["postgres://u@localhost/d?sslmode=", anotherMode],
    ["postgres://u@localhost/d?sslmode=VERIFY-FULL", anotherMode],
    ["postgres://u@localhost/d?sslmode=require&host=/run/postgresql", "must not ask for TLS on a Unix socket"]
  ])("is refused with a sentence that names its fault: %j", (url, sentence) => {
    assert.strictEqual(refusalOf(url).message, sentence)
  })

  it.each([
    "postgres://u@db.example.org/d",
    "postgres://u@db.example.org/d?sslmode=disable",
    "postgres://u@db.example.org/d?sslmode=allow",
    "postgres://u@db.example.org/d?sslmode=prefer",
    "postgres://u@10.0.0.1/d",
    "postgres://u@[2001:db8::1]/d",
    "postgres://u@[::ffff:10.0.0.1]/d",
    "postgres://u@localhost.example.org/d",
    "postgres://u@127.0.0.1.example.org/d",
    "postgres://u@127.1.example/d",
    "postgres://u@localhost/d?host=db.example.org",
    "postgres://u@%64b.example.org/d"
  ])("is refused if it names another machine without TLS: %s", (url) => {
    assert.strictEqual(refusalOf(url).message, withoutTls)
  })

  it.each([
    "postgres://u@localhost/d?host=one.example.org,two.example.org&sslmode=verify-full",
    "postgres://u@localhost/d?host=localhost,db.example.org",
    "postgres://u@localhost/d?host=/run/one,/run/two",
    "postgres://u@localhost/d?host=/run/one&host=/run/two",
    "postgres://u@one.example.org/d?sslmode=verify-full&sslmode=disable"
  ])("is refused if it names several hosts or sslmodes: %s", (url) => {
    assert.instanceOf(refusalOf(url), InvalidDatabaseUrl)
  })
})

const canary = "canary"

/** URLs of parts that are good, odd or bad; each that was made up for the test holds the canary. */
const urls = Arbitrary.all(
  [
    ["postgres://", "postgresql://", "http://", "postgres:/"],
    [`${canary}u`, `${canary}%`, `${canary} u`, ""],
    ["", ":", `:${canary}p`, `:${canary}@p`, `:${canary}%zz`],
    ["@", "", "@@"],
    ["localhost", "127.0.0.1", "[::1]", `${canary}.example.org`, `${canary},localhost`, `%${canary}`, "%2Frun"],
    ["", ":5432", ":0", ":99999", `:${canary}`],
    ["", `/${canary}d`, `/${canary}%`, `/a/${canary}`],
    ["", "?", `?${canary}=1&`, `?sslrootcert=/${canary}&`, `?host=${canary}&`, "?host=localhost&", `?host=/${canary}&`],
    ["", "sslmode=disable", "sslmode=prefer", "sslmode=require", "sslmode=verify-full", `sslmode=${canary}`]
  ].map((texts) => Arbitrary.schema(Schema.Literals(texts)))
).pipe(Arbitrary.map((parts) => parts.join("")))

const runs = { arbitrary: { runs: 2000 } }

describe("any database URL", () => {
  it.prop(
    "is not quoted by the error that refuses it, in any form of that error (T4)",
    [urls],
    ([url]) => {
      try {
        parse(url)
      } catch (error) {
        assert.instanceOf(error, InvalidDatabaseUrl)
        const seen = inspect(error, { depth: null, showHidden: true })
        assert.notInclude([String(error), error.stack, JSON.stringify(error), seen].join("\n"), canary)
      }
    },
    runs
  )

  it("is quoted by Node's own error (control)", () => {
    try {
      new URL(`postgres://u:${canary}@local host/d`)
    } catch (error) {
      return assert.include(inspect(error), canary)
    }
    assert.fail("was accepted")
  })

  it.prop(
    "is accepted without TLS only if it names this machine",
    [urls],
    ([url]) => {
      try {
        const { host, tls } = parse(url)
        if (tls === undefined) assert.match(host, /^(localhost|127\.0\.0\.1|::1|\/.*)$/)
        else assert.isUndefined(tls.rejectUnauthorized)
      } catch (error) {
        assert.instanceOf(error, InvalidDatabaseUrl)
      }
    },
    runs
  )
})

import { hash, randomBytes, randomInt } from "node:crypto"
import { parseArgs } from "node:util"
import { formatApiKey } from "../../../src/runtime/ApiKey.ts"
import { addAccount, type Bed, issue, onBed, seededId } from "../Bed.ts"
import { service, startTarget } from "../Target.ts"
import { isDelayed } from "./delayed.ts"
import { openStopwatch } from "./Stopwatch.ts"
import { compare } from "./Welch.ts"

const { values } = parseArgs({ options: { requests: { type: "string", default: "20000" } } })
const requests = Number(values.requests)
const warmUp = requests / 10
/** The value of Welch's t above which a difference counts as significant. */
const significant = 4.5
const pool = 100

/** Requests that must take equally long, by how they differ; the others are compared with the first. */
type Classes = Readonly<Record<string, ReadonlyArray<string>>>

const times = <A>(count: number, make: (index: number) => A) => Array.from({ length: count }, (_, index) => make(index))
const sha256 = (token: string) => hash("sha256", token)
const newToken = () => formatApiKey(randomBytes(32), "management")
/** Makes a token that is cheap to make in bulk. */
const smallToken = () => {
  const bytes = Buffer.alloc(32)
  bytes.writeUIntBE(randomInt(2 ** 48 - 1), 26, 6)
  return formatApiKey(bytes, "management")
}
const tokensThat = (suits: (hash: string) => boolean, make = newToken) => {
  const found: Array<string> = []
  while (found.length < pool) {
    const token = make()
    if (suits(sha256(token))) found.push(token)
  }
  return found
}

const prepare = async ({ client }: Bed) => {
  const account = "00000000-0000-7000-8000-00000000000c"
  await addAccount(client, account)
  const live = times(1_000, newToken)
  await issue(client, account, live)
  const revoked = tokensThat((hash) => !isDelayed(hash))
  await issue(client, account, revoked, new Date())
  await client.query(
    "DELETE FROM credentials WHERE right(id::text, 1) IN ('1', '3', '5', '7', '9', '0') AND id <> $1",
    [seededId(1)]
  )
  await client.query("VACUUM ANALYZE")
  return { token: live[0] ?? "", live: new Set(live.map((token) => sha256(token).slice(0, 6))), revoked }
}

const get = (token: string, id: string) => `GET /api/v1/byok/${id} HTTP/1.1\r\nAuthorization: Bearer ${token}`

const measure = async (url: string, classes: Classes, status: number) => {
  const stopwatch = await openStopwatch(url)
  const seen = new Map(Object.keys(classes).map((name) => [name, [] as Array<number>]))
  const rounds = Math.ceil(requests / seen.size)
  for (let round = -Math.ceil(warmUp / seen.size); round < rounds; round += 1) {
    const order = Object.entries(classes)
      .map((entry) => [Math.random(), entry] as const)
      .sort(([one], [other]) => one - other)
    for (const [, [name, heads]] of order) {
      const answer = await stopwatch.time(heads[randomInt(heads.length)] ?? "")
      if (answer.status !== status) throw new Error(`${name} was answered ${answer.status}`)
      if (round >= 0) seen.get(name)?.push(answer.micros)
    }
  }
  stopwatch.close()
  return seen
}

/** Compares each class with the first, and reports whether the result is as expected. */
const judge = async (title: string, url: string, classes: Classes, status: number, isControl: boolean) => {
  const [[first = "", reference = []] = [], ...others] = await measure(url, classes, status)
  console.log(`\n${title}: ${requests} requests, each compared with ${first}`)
  return others.map(([name, values]) => {
    const { difference, t } = compare(reference, values)
    const fine = Math.abs(t) < significant !== isControl
    console.log(
      `${fine ? "ok  " : "FAIL"}  t ${t.toFixed(2).padStart(7)}  ${difference.toFixed(1).padStart(6)} us  ${name}`
    )
    return fine
  })
}

onBed("timing", 5_000, async (bed) => {
  const outcomes: Array<boolean> = []
  const { live, revoked, token } = await prepare(bed)
  const withId = (ids: ReadonlyArray<string>) => ids.map((id) => get(token, id))
  const withToken = (tokens: ReadonlyArray<string>) => tokens.map((each) => get(each, seededId(2)))
  const unknown = withToken(tokensThat((hash) => !isDelayed(hash)))
  const others = withId(times(2_000, (n) => seededId(2 * n + 2)).filter((id) => !isDelayed(id)))
  const none = withId(times(2_000, (n) => seededId(2 * n + 3)))

  const target = await startTarget(service, bed)
  const tokens = {
    "an unknown token": unknown,
    "another pool of unknown tokens": withToken(tokensThat((hash) => !isDelayed(hash))),
    "a revoked token": withToken(revoked),
    "a token whose check digits are wrong": withToken(times(pool, smallToken)),
    "a token whose hash begins as that of a live key": withToken(
      tokensThat((hash) => live.has(hash.slice(0, 6)), smallToken)
    )
  }
  outcomes.push(...(await judge("Token, 401", target.url, tokens, 401, false)))
  const ids = { "no credential": none, "another account's credential": others }
  outcomes.push(...(await judge("Existence, 404", target.url, ids, 404, false)))
  await target.stop()

  const program = { ...service, name: "delaying", arguments: ["test/bench/timing/DelayingService.ts"] }
  const delaying = await startTarget(program, bed)
  const delayed = {
    "an unknown token": unknown,
    "a token that takes 200 us longer": withToken(tokensThat(isDelayed))
  }
  outcomes.push(...(await judge("Control, 401", delaying.url, delayed, 401, true)))
  const delayedIds = {
    "no credential": none,
    "one that takes 200 us longer": withId(times(400, (n) => seededId(10 * n + 10)))
  }
  outcomes.push(...(await judge("Control, 404", delaying.url, delayedIds, 404, true)))
  await delaying.stop()
  process.exitCode = outcomes.every((fine) => fine) ? 0 : 1
})

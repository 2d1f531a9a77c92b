import { Effect, type Tracer } from "effect"
import type { CredentialPage } from "../../../src/port/CredentialRepository.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { tracerTo } from "../../support/process/Recording.ts"
import { assert, it } from "../../support/it.ts"

const kibibyte = 1024

/** Lists pages at the same time, and answers how many pages each statement read. */
const open = Effect.gen(function* () {
  const { repository } = yield* openLossyStore
  const asked: Array<number> = []
  const memory = (taken: number) => ({
    taken,
    take: (bytes: number) => Effect.sync(() => void asked.push(bytes))
  })
  const unlimited = { workspace_id, offset: 0, limit: 1 }
  const page = (changed: Partial<CredentialPage> = {}): CredentialPage =>
    Object.assign({}, unlimited, { memory: memory(kibibyte) }, changed)
  const list = (pages: ReadonlyArray<CredentialPage>) =>
    Effect.forEach(pages, (one) => repository.list(account_id, one), { concurrency: "unbounded" })
  const statements = Effect.fnUntraced(function* (pages: ReadonlyArray<CredentialPage>) {
    const spans: Array<Tracer.NativeSpan> = []
    yield* list(pages).pipe(Effect.withSpan("root"), Effect.withTracer(tracerTo((span) => spans.push(span))))
    return spans
      .filter(({ kind, name }) => kind === "client" && name === "credentials.list")
      .map(({ attributes }) => attributes.get("db.operation.batch.size") ?? 1)
  })
  return { asked, list, memory, page, repository, statements, unlimited }
})
const times = <A>(count: number, one: A) => Array.from({ length: count }, () => one)

it.live("a page that exceeds the memory taken for it is read again once more is taken (R13)", function* () {
  const { asked, list, memory, page, repository, statements } = yield* open
  const allowed_models = times(100, "m".repeat(200))
  yield* repository.insert(account_id, { ...plainCredential(workspace_id, uuid(11)), allowed_models }, plainSealedKey())
  const [all] = yield* list([page({ memory: memory(1024 * kibibyte) })])
  assert.deepStrictEqual(all?.credentials[0]?.allowed_models, allowed_models)
  assert.deepStrictEqual(asked, [])
  assert.deepStrictEqual(yield* statements([page()]), [1, 1])
  const bytes = 20_000
  assert.deepStrictEqual(asked, [bytes])
  assert.deepStrictEqual(yield* list([page({ memory: memory(bytes) }), page({ memory: memory(bytes - 1) })]), [
    all,
    all
  ])
  assert.deepStrictEqual(asked, [bytes, bytes])
})

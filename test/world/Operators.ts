import { Context, DateTime, Effect, type Option } from "effect"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { LeakedKeys } from "../../src/port/LeakedKeys.ts"
import type { Deeds, Scene } from "./Scene.ts"
import { tenantAt } from "./Tenants.ts"

type Names = "leak" | "alter" | "rewrap" | "revoke" | "delete workspace" | "erase"
type Troubles = "restart" | "other keyring" | "disconnect" | "lock row"

/** What operators do, and what befalls instances and the database. */
export const operatorDeeds = (scene: Scene): Deeds<Names | Troubles> => {
  const { log, memory, stores } = scene
  const { deleteWorkspace, eraseAccount, revokeApiKey } = Context.get(stores, AccountRepository)
  const day = DateTime.makeUnsafe(0)
  type Write = Effect.Effect<Option.Option<unknown> | ReadonlyArray<unknown>>
  const writing = (name: string, write: Write, written: () => void = () => {}) =>
    Effect.sync(() => {
      Effect.runSync(scene.shared.carriedOut(name, undefined, write))
      written()
    })
  const befalls = (trouble: () => void) =>
    Effect.sync(() => {
      scene.counts.faults += 1
      trouble()
    })
  const until = (millis: number) => scene.simulation.now + millis

  return {
    leak: ({ other, pick }) => {
      const { conclude } = Context.get(stores, LeakedKeys)
      const keys = [pick, other].flatMap((index) => {
        const row = log.rowAt(index)
        if (row === undefined) return []
        const { account_id, credential, key_version } = row
        return [{ account_id, workspace_id: credential.workspace_id, credential_id: credential.id, key_version }]
      })
      return writing("conclude", Effect.orDie(conclude({ keys, searched: keys.length, park: true })))
    },
    alter: ({ pick }) =>
      Effect.sync(() =>
        log.edit(pick, (row) => {
          log.altered.add(row.credential.id)
          return { ...row, credential: { ...row.credential, is_fallback: !row.credential.is_fallback } }
        })
      ),
    rewrap: ({ pick }) =>
      Effect.sync(() => log.edit(pick, (row) => ({ ...row, sealed: { ...row.sealed, kek_id: "kek-3" } }))),
    revoke: ({ apiKey, tenant }) => {
      const hash = tenantAt(tenant).apiKeys[apiKey]
      if (hash === undefined || !memory.apiKeys.has(hash) || scene.revoked.has(hash)) return Effect.void
      return writing("revoke", Effect.orDie(revokeApiKey(hash, day)), () => scene.revoked.set(hash, scene.now))
    },
    "delete workspace": ({ tenant }) =>
      writing("delete", Effect.orDie(deleteWorkspace(tenantAt(tenant).workspace_id, day))),
    erase: ({ tenant }) =>
      writing("erase", Effect.orDie(eraseAccount(tenantAt(tenant).account_id, day, Number.POSITIVE_INFINITY))),

    restart: ({ gently }, _act, instance) => instance.restart(gently),
    "other keyring": ({ millis }, _act, instance) =>
      befalls(() => (instance.otherKeyring = { since: until(0), until: until(millis) })),
    disconnect: ({ millis }, _act, instance) => befalls(() => (instance.cutUntil = until(millis))),
    "lock row": ({ millis, pick }) =>
      befalls(() => {
        const target = log.picked(pick)
        if (target !== undefined) scene.shared.lockedUntil.set(target.id, until(millis))
      })
  }
}

import { Effect, Exit, Option, Redacted } from "effect"
import type { CredentialId } from "../../src/domain/Identifiers.ts"
import { encodeSealTarget, type NewLink } from "../../src/domain/Link.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { LinkClosed, type LinkKeys, type LinkRecord, NotForThisLink } from "../../src/port/Links.ts"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { Links } from "../../src/service/links/Links.ts"
import { broken, isAway } from "./Broken.ts"
import type { DeedOf } from "./History.ts"
import type { Act, Instance } from "./Instance.ts"
import { epoch } from "./Simulation.ts"
import type { Deeds, Scene } from "./Scene.ts"
import { changes, inputs, providers, type Tenant, tenantAt } from "./Tenants.ts"

const textOf = (bytes: Uint8Array) => Buffer.from(bytes).toString()

/** Key pairs with numbers for keys, of which none opens two keys. */
export const linkKeys = (): LinkKeys["Service"] => {
  let pairs = 0
  const opened = new Set<string>()
  return {
    make: () =>
      Effect.sync(() => {
        const public_key = new Uint8Array(Buffer.from(`pair ${(pairs += 1)}`))
        return { public_key, private_key: { kek_id: "kek-2", wrapped_dek: public_key, sealed: public_key } }
      }),
    verify: () => Effect.void,
    open: (_link, { public_key }, { ciphertext, enc }, target) =>
      Effect.suspend(() => {
        const pair = textOf(public_key)
        const [to, key] = JSON.parse(textOf(ciphertext)) as [string, string]
        if (textOf(enc) !== pair || to !== encodeSealTarget(target)) return Effect.fail(new NotForThisLink())
        if (opened.has(pair)) broken("a key pair opens two keys")
        opened.add(pair)
        return Effect.succeed(Redacted.make(key))
      })
  }
}

/** A link as whoever got its address knows it. */
interface Sent {
  readonly tenant: Tenant
  readonly request: NewLink
  readonly token: Redacted.Redacted
  readonly link_id: LinkRecord["link_id"]
}

/** What owners do by links. A link that is closed is told apart from one that fails. */
export const linkDeeds = (scene: Scene): Deeds<"link" | "use link" | "revoke link"> => {
  const { log } = scene
  const sent: Array<Sent> = []
  const sentAt = (n: number) => sent.toReversed()[n % Math.max(1, sent.length)]

  /** What the page does: it seals a key for the link as it found it. */
  const writes = (link: LinkRecord, { body, change, how, pick }: DeedOf<"use link">) =>
    Effect.gen(function* () {
      const [credentials, links] = [yield* Credentials, yield* Links]
      const openFor = (key: Redacted.Redacted, provider: string, credential_id: CredentialId | null) => {
        const target = encodeSealTarget({ ...link, provider, credential_id })
        const ciphertext = new Uint8Array(Buffer.from(JSON.stringify([target, Redacted.value(key)])))
        const sealed = { enc: link.keys?.public_key ?? new Uint8Array(), ciphertext }
        return links.openKey(link, sealed, { provider, credential_id })
      }
      const input = inputs[link.provider === providers[1] ? 1 : 0]?.[body]
      if (link.purpose === "connect" || (link.purpose === "manage" && how === 0)) {
        if (input === undefined) return
        const key = yield* openFor(input.key, input.provider, null)
        yield* credentials.create({ ...input, key, workspace_id: link.workspace_id })
        return
      }
      const id = link.credential_id ?? log.picked(pick)?.id
      if (id === undefined) return
      const { provider, workspace_id } = yield* credentials.get(id)
      if (workspace_id !== link.workspace_id) return
      if (how === 1 && link.purpose === "manage") return yield* credentials.delete(id)
      const changed = changes[link.purpose === "replace" ? 7 : change]?.decoded ?? {}
      const key = changed.key === undefined ? {} : { key: yield* openFor(changed.key, provider, id) }
      yield* credentials.update(id, { ...changed, ...key })
    })

  const use = (deed: DeedOf<"use link">, act: Act, instance: Instance, { tenant, token, request }: Sent) => {
    let isClosed = false
    const asked = Effect.gen(function* () {
      const { find, findStored } = yield* Links
      const found = yield* find(hashApiKey(token))
      const record = Option.getOrUndefined(found)
      if (record === undefined) return broken("a link is gone")
      if (record.state !== "open") {
        isClosed = true
        const stored = Option.getOrUndefined(yield* findStored(record))
        const { id, label, provider } = log.storedBy(record)?.after?.credential ?? {}
        const isThere = scene.memory.credentials.has(id as CredentialId)
        const isTold = stored?.label === label && stored?.provider === provider
        if (record.state === "used" && isThere && !isTold) broken("a used link does not tell what it has stored")
        return
      }
      act.link = record
      const { state: _, stored_label: _label, ...link } = record
      yield* Effect.provideService(writes(record, deed), CurrentPrincipal, { kind: "link", ...link })
    })
    const closing = Effect.catchDefect(asked, (defect) => {
      isClosed = defect instanceof LinkClosed
      return isClosed ? Effect.void : Effect.die(defect)
    })
    return scene.ask(instance, act, closing, (exit) => {
      const commits = log.commitsOf(act)
      if (commits.length > 1) broken(`act ${act.n} of a link has written ${commits.length} times`)
      const isRefused = Exit.isFailure(exit) ? !isAway(exit.cause) : isClosed
      if (isRefused && commits.length > 0) broken(`act ${act.n} of a link was refused, and is there`)
      const stores = request.purpose === "connect" && Exit.isSuccess(exit) && !isClosed
      if (stores && commits[0]?.after?.account_id !== tenant.account_id) broken(`act ${act.n} of a link stores nothing`)
    })
  }

  const revoke = (act: Act, instance: Instance, { link_id, tenant }: Sent) => {
    const asked = Links.use((links) => links.revoke(tenant.account_id, link_id))
    return scene.ask(instance, act, asked, (exit) => {
      if (Exit.isSuccess(exit)) log.closed.add(link_id)
    })
  }

  return {
    link: ({ pick, provider, purpose, tenant: t }, act, instance) => {
      const tenant = tenantAt(t)
      const target = log.picked(pick)
      const isReplace = purpose === 1 && target?.tenant === tenant
      const request: NewLink = isReplace
        ? { purpose: "replace", credential_id: target.id, expires_in: 3600 }
        : purpose === 2
          ? { purpose: "manage", expires_in: 3600 }
          : { purpose: "connect", provider: providers[provider === 0 ? 0 : 1], expires_in: 3600 }
      const asked = Links.use(({ create }) => create(tenant.account_id, request))
      const began = scene.simulation.now
      return scene.ask(instance, act, asked, (exit) => {
        if (Exit.isFailure(exit)) return
        const { expires_at, link_id, url } = exit.value
        const lasts = expires_at.epochMilliseconds - epoch - 1000 * request.expires_in
        if (lasts < began || lasts > scene.simulation.now) broken("a link ends by another clock than the database's")
        sent.push({ tenant, request, link_id, token: Redacted.make(Redacted.value(url).split("#")[1] ?? "") })
      })
    },

    "use link": (deed, act, instance) => {
      const one = sentAt(deed.link)
      if (one === undefined) return Effect.void
      const used = use(deed, act, instance, one)
      if (deed.meanwhile === null) return used
      const other = scene.instances[scene.random.below(scene.instances.length)] as Instance
      const another: Act = { ...act, faults: new Map() }
      const meanwhile = deed.meanwhile === "again" ? use(deed, another, other, one) : revoke(another, other, one)
      return Effect.all([used, meanwhile], { concurrency: 2, discard: true })
    },

    "revoke link": ({ link }, act, instance) => {
      const one = sentAt(link)
      return one === undefined ? Effect.void : revoke(act, instance, one)
    }
  }
}

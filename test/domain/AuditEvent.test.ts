import { Option, Schema } from "effect"
import { AuditEvent } from "../../src/domain/AuditEvent.ts"
import { assert, describe, it } from "../support/it.ts"

const id = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const api_key_hash = "a".repeat(64)

const actors: ReadonlyArray<object> = [
  { kind: "api_key", api_key_hash },
  { kind: "in_process" },
  { kind: "cli", user: "somebody" },
  { kind: "cli" },
  { kind: "service" }
]

const account = { account_id: id }
const workspace = { ...account, workspace_id: id }
const credential = { ...workspace, credential_id: id, provider: "openai", label: "sk-...AbCd" }
const key = { ...credential, key_version: 1 }

const acts: ReadonlyArray<object> = [
  { action: "account.create", ...account },
  { action: "workspace.create", ...workspace },
  { action: "workspace.default", ...workspace },
  { action: "workspace.delete", ...workspace },
  { action: "api_key.issue", ...account, api_key_hash, role: "management" },
  { action: "api_key.revoke", ...account, api_key_hash },
  { action: "credential.create", ...credential },
  { action: "credential.delete", ...credential },
  { action: "leak.search", searched: 2, found: 1 },
  { action: "credential.park", ...key },
  { action: "credential.unpark", ...key },
  ...["register", "promote", "retire", "reinstate"].map((act) => ({ action: `keyring.${act}`, kek_id: "kek-1" })),
  { action: "keyring.rewrap", kek_id: "kek-2", from: { "kek-1": 5 } }
]

const read = Schema.decodeUnknownOption(AuditEvent, { onExcessProperty: "error" })

/** An object without each of its members in turn. */
const lacking = (whole: object) =>
  Object.keys(whole).map((name) => Object.fromEntries(Object.entries(whole).filter(([other]) => other !== name)))

describe("the schema of audit events (SECURITY.md, Audit)", () => {
  it.each(acts)("accepts %j with any kind of actor, and refuses it with a member added or removed", (act) => {
    for (const actor of actors) assert.deepStrictEqual<unknown>(read({ ...act, actor }), Option.some({ ...act, actor }))
    const [actor] = actors
    for (const part of lacking({ ...act, actor })) assert.isTrue(Option.isNone(read(part)))
    assert.isTrue(Option.isNone(read({ ...act, actor, name: "a name" })))
  })

  it("refuses an unknown or incomplete actor", () => {
    const [act] = acts
    const unknown = [{}, { kind: "root" }, { kind: "api_key" }, { kind: "service", user: "somebody" }]
    for (const actor of unknown) assert.isTrue(Option.isNone(read({ ...act, actor })))
  })
})

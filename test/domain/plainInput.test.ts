import { Schema } from "effect"
import { CredentialChanges, plainCredentialChanges } from "../../src/domain/CredentialChanges.ts"
import { NewCredential, plainNewCredential } from "../../src/domain/NewCredential.ts"
import { describe, it } from "../support/it.ts"
import { changed, decodesAs } from "../support/memory/plainDecoding.ts"

const id = "01a20982-acc4-729c-ac1e-f6ee483b1ae1"
const long = "a".repeat(255)
const values: ReadonlyArray<unknown> = [
  ...[null, true, false, 0, 1.5, "", "a", "a\0", "\ud800", long, `${long}a`, "😀".repeat(200), "global", "us", "eu"],
  ...["azure", "openai", "anthropic/2", "openay", id, id.toUpperCase(), "0".repeat(64), "g".repeat(64), [], {}, [null]],
  ...[
    ["a", 1],
    ["a"],
    ["0".repeat(64)],
    ["G".repeat(64)],
    Array(100).fill("m"),
    Array(101).fill("m"),
    [long, `${long}a`]
  ],
  ...[
    " key",
    "key\n",
    '"key"',
    "Bearer key",
    "sk-...AbCd",
    '{"api_key":"a-key","region":"eu"}',
    '{"api_key":""}',
    "{",
    "[1"
  ],
  ...['{"api_key":" a-key"}', ' {"api_key":"a-key"}']
]

const members = {
  ...{ key: "sk-0123456789-0123456789", name: "a name", disabled: true, is_fallback: false, is_required: false },
  ...{ is_byok_only: true, allowed_api_key_hashes: ["0".repeat(64)], allowed_models: ["a/model"], declared_zdr: null },
  ...{ allowed_user_ids: [], declared_region: "global" }
}
const creates = ["azure", "openai"].map((provider) => ({ ...members, provider, workspace_id: id }))
const options = { errors: "all" } as const

describe("what is decoded by hand", () => {
  it.effect.each(creates)("of a create for $provider is what its schema decodes, in all but rare forms", (create) =>
    decodesAs(
      values,
      create,
      changed(values, create),
      plainNewCredential,
      Schema.decodeUnknownExit(NewCredential, options),
      0.5
    )
  )

  it.effect("of an update is what its schema decodes, in all but rare forms", () =>
    decodesAs(
      values,
      members,
      changed(values, members),
      plainCredentialChanges,
      Schema.decodeUnknownExit(CredentialChanges, options),
      0.5
    )
  )
})

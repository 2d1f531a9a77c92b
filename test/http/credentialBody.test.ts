import { Schema } from "effect"
import { credentialBody } from "../../src/http/Handlers.ts"
import { Credential } from "../../src/domain/Credential.ts"
import { anyCredential } from "../support/memory/arbitraries.ts"
import { assert, it } from "../support/it.ts"

const encode = Schema.encodeSync(Schema.Struct({ data: Credential }))

it.prop(
  "encodes a credential to the same bytes as the contract's schema (section 2.1)",
  [anyCredential],
  ([credential]) => {
    assert.strictEqual(credentialBody(credential), JSON.stringify(encode({ data: credential })))
  },
  { arbitrary: { runs: 1000 } }
)

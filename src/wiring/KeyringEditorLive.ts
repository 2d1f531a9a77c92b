import { Effect, Layer } from "effect"
import * as KeyringEditorFile from "../crypto/keyring/KeyringEditorFile.ts"
import { KeyringEditor } from "../port/KeyringEditor.ts"
import { keyringSource } from "./KeyringLive.ts"
import { InvalidSetting, type Settings } from "./Settings.ts"

const make = Effect.fnUntraced(function* (settings: Settings) {
  const { file, setting } = yield* keyringSource(settings)
  if (file !== undefined) return yield* KeyringEditorFile.make(file, setting)
  return yield* new InvalidSetting({
    message: `${setting} is not a file, so it cannot be changed here: change it where it is set, and restart the service.`
  })
})

/** Edits the keyring file that the settings name; a keyring that is not a file is an invalid setting. */
export const layer = (settings: Settings) => Layer.effect(KeyringEditor, make(settings))

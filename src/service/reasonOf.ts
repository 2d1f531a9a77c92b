import type { RewrapFailure } from "../port/Rewrapper.ts"

/** Why a stored key could not be opened or rewrapped, for a person. */
export const reasonOf = (failure: RewrapFailure) => {
  switch (failure._tag) {
    case "UnknownKeyId":
      return `key ${failure.kek_id} is not in the keyring`
    case "UnsupportedFormat":
      return "this version does not support its sealing format"
    case "AuthenticationFailed":
      return "the credential or its sealed key was altered"
  }
}

import type { Health, Pause } from "../../domain/routing/Health.ts"
import type { StoredParking } from "../../port/CredentialPools.ts"

/** The health of a key as the database knows it; undefined if nothing stands against it. Older keys' parkings are void. */
export const healthOf = (parkings: ReadonlyArray<StoredParking>, key_version: number): Health | undefined => {
  let whole: Pause | null = null
  const models = new Map<string, Pause>()
  for (const { cause, model, strikes, until, ...parking } of parkings) {
    if (cause === "leaked" || until === null || parking.key_version !== key_version) continue
    const pause: Pause = { cause, strikes, until, tried_at: null }
    if (model === "") whole = pause
    else models.set(model, pause)
  }
  return whole === null && models.size === 0 ? undefined : { key_version, whole, models }
}

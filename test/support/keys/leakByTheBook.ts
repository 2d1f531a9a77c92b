/** Every string in JSON text, in any order. */
const stringsIn = (text: string): ReadonlyArray<string> => {
  const strings: Array<string> = []
  const keep = (_name: string, value: unknown) => {
    if (typeof value === "string") strings.push(value)
    return value
  }
  try {
    JSON.parse(text, keep)
    return strings
  } catch {
    return []
  }
}

const materialIn = (text: string): ReadonlyArray<string> => {
  if (!text.trimStart().startsWith("{")) return []
  try {
    const { api_key, region = "us" } = JSON.parse(text) as { readonly api_key?: unknown; readonly region?: unknown }
    const known = ["global", "europe", "us", "eu"].includes(String(region))
    return typeof api_key === "string" && api_key !== "" && known ? [api_key] : []
  } catch {
    return []
  }
}

/** Whether a stored key is the leaked text or has it inside, worked out without labels, seals or the code under test. */
export const holdsByTheBook = (provider: string, key: string, leak: string): boolean => {
  const material = provider === "openai" || provider === "fireworks" ? materialIn(key) : []
  const stored = [key, ...material, ...(material.length > 0 ? material : [key]).flatMap(stringsIn)]
  const texts = [leak, leak.replace(/^\uFEFF/, "").replace(/\r?\n$/, "")]
  return [...texts, ...texts.flatMap(materialIn)].some((secret) => secret !== "" && stored.includes(secret))
}

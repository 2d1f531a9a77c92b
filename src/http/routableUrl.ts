const isEncoded = (path: string) => {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/**
 * Makes a router take every path for what it says: one that is not percent-encoded UTF-8 stands for itself, and `;`
 * begins no query. So no request passes by its authentication, and nothing is found that was not asked for (D5, D10).
 */
export const routableUrl = (url: string): string => {
  const [path = ""] = /^[^?#]*/.exec(url) ?? []
  if (!/[%;]/.test(path)) return url
  const encoded = isEncoded(path) ? path : path.replaceAll("%", "%25")
  return encoded.replaceAll(";", "%3B") + url.slice(path.length)
}

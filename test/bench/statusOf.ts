/** The status of the answer to a GET, read to its end; none if there is no answer. */
export const statusOf = async (url: string, headers: Readonly<Record<string, string>> = {}) => {
  try {
    const response = await fetch(url, { headers })
    await response.arrayBuffer()
    return response.status
  } catch {
    return undefined
  }
}

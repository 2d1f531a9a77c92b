/** The instances among which a balancer spreads requests. */
export interface Rotation {
  readonly add: (url: string) => void
  /** Sends an instance nothing more, and waits for its answers. */
  readonly remove: (url: string) => Promise<void>
  /** Calls the instance whose turn it is. */
  readonly call: <A>(request: (url: string) => Promise<A>) => Promise<A>
}

export const makeRotation = (): Rotation => {
  const urls: Array<string> = []
  const waiting = new Map<string, Set<Promise<unknown>>>()
  let turn = 0
  return {
    add: (url) => {
      urls.push(url)
      waiting.set(url, new Set())
    },
    remove: async (url) => {
      urls.splice(urls.indexOf(url), 1)
      await Promise.allSettled([...(waiting.get(url) ?? [])])
    },
    call: (request) => {
      const url = urls[(turn += 1) % urls.length]
      if (url === undefined) return Promise.reject(new Error("no instance is left"))
      const answer = request(url)
      const open = waiting.get(url)
      open?.add(answer)
      const forget = () => void open?.delete(answer)
      answer.then(forget, forget)
      return answer
    }
  }
}

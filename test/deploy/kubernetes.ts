import { globSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor"
import { Effect } from "effect"
import { Deployment } from "kubernetes-models/apps/v1/Deployment"
import { HorizontalPodAutoscaler } from "kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler"
import { Job } from "kubernetes-models/batch/v1/Job"
import { Ingress } from "kubernetes-models/networking.k8s.io/v1/Ingress"
import { NetworkPolicy } from "kubernetes-models/networking.k8s.io/v1/NetworkPolicy"
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget"
import { ConfigMap } from "kubernetes-models/v1/ConfigMap"
import { Secret } from "kubernetes-models/v1/Secret"
import { Service } from "kubernetes-models/v1/Service"
import { ServiceAccount } from "kubernetes-models/v1/ServiceAccount"
import { parseAllDocuments } from "yaml"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { broken, type Check, problemsOf } from "./Check.ts"
import { unreadKeys } from "./unreadKeys.ts"

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata?: { readonly name?: string }
}

/** As Kubernetes reads YAML: version 1.1, in which 0400 is octal. */
const manifestsIn = (path: string) =>
  parseAllDocuments(readFileSync(path, "utf8"), { version: "1.1" }).map((document) => {
    if (document.errors[0] !== undefined) throw document.errors[0]
    return document.toJS() as Manifest
  })

const models = [
  ConfigMap,
  Deployment,
  HorizontalPodAutoscaler,
  Ingress,
  Job,
  NetworkPolicy,
  PodDisruptionBudget,
  PodMonitor,
  Secret,
  Service,
  ServiceAccount
]

const invalidIn = (manifest: Manifest): ReadonlyArray<string> => {
  const Model = models.find(({ apiVersion, kind }) => apiVersion === manifest.apiVersion && kind === manifest.kind)
  if (Model === undefined) return [`there is no kind ${manifest.kind} in ${manifest.apiVersion}`]
  const model = new Model(JSON.parse(JSON.stringify(manifest)) as never)
  try {
    const unknown = unreadKeys(model, (watched) => watched.validate())
    return unknown.map((path) => `${path} is unknown`)
  } catch (invalid) {
    return [invalid instanceof Error ? invalid.message : String(invalid)]
  }
}

/** All values of a member of that name, at any depth. */
const valuesOf = (value: unknown, name: string): ReadonlyArray<unknown> =>
  typeof value !== "object" || value === null
    ? []
    : Object.entries(value).flatMap(([key, member]: [string, unknown]) => [
        ...(key === name ? [member] : []),
        ...valuesOf(member, name)
      ])

type Labels = Readonly<Record<string, string>>

const isSelected = (labels: Labels, selector: Labels) =>
  Object.entries(selector).every(([name, value]) => labels[name] === value)

/** Names to which a manifest refers and that no manifest declares. */
const unknownNames = (manifests: ReadonlyArray<Manifest>): ReadonlyArray<string> => {
  const of = (...kinds: ReadonlyArray<string>) => manifests.filter(({ kind }) => kinds.includes(kind))
  const pods = of("Deployment", "Job").flatMap((manifest) => valuesOf(manifest, "template"))
  const labels = pods.flatMap((pod) => valuesOf(pod, "labels")) as ReadonlyArray<Labels>
  const selectors = [
    ...of("Deployment", "PodDisruptionBudget", "PodMonitor").flatMap((manifest) => valuesOf(manifest, "selector")),
    ...of("NetworkPolicy").flatMap((manifest) => valuesOf(valuesOf(manifest, "spec")[0], "podSelector").slice(0, 1)),
    ...pods.flatMap((pod) => valuesOf(pod, "labelSelector"))
  ].flatMap((selector) => valuesOf(selector, "matchLabels"))
  const plain = of("Service").flatMap((manifest) => valuesOf(manifest, "selector"))
  const selecting = [...selectors, ...plain] as ReadonlyArray<Labels>

  const ports = pods.flatMap((pod) => valuesOf(pod, "ports").flat()).flatMap((port) => valuesOf(port, "name"))
  const targets = [
    ...of("Service").flatMap((manifest) => valuesOf(manifest, "targetPort")),
    ...of("PodMonitor", "NetworkPolicy", "Deployment").flatMap((manifest) => valuesOf(manifest, "port"))
  ].filter((port) => typeof port === "string")

  /** The other port drops connections at MAX_CONNECTIONS: pods that are only busy would be restarted. */
  const probes = of("Deployment").flatMap((manifest) => valuesOf(manifest, "httpGet"))
  const dropped = probes.filter((probe) => Reflect.get(Object(probe), "port") !== "management")

  const secrets = pods.flatMap((pod) => [
    ...valuesOf(pod, "secretName"),
    ...valuesOf(pod, "secretKeyRef").flatMap((reference) => valuesOf(reference, "name"))
  ])
  const maps = pods.flatMap((pod) => valuesOf(pod, "configMap").flatMap((map) => valuesOf(map, "name")))
  const accounts = pods.flatMap((pod) => valuesOf(pod, "serviceAccountName"))
  const scaled = of("HorizontalPodAutoscaler").flatMap((manifest) =>
    valuesOf(manifest, "scaleTargetRef").flatMap((target) => valuesOf(target, "name"))
  )
  const missing = (kind: string, names: ReadonlyArray<unknown>) =>
    names
      .filter((name) => !of(kind).some(({ metadata }) => metadata?.name === name))
      .map((name) => `there is no ${kind} ${String(name)}`)
  return [
    ...selecting
      .filter((selector) => !labels.some((all) => isSelected(all, selector)))
      .map((selector) => `no pod has the labels ${JSON.stringify(selector)}`),
    ...targets.filter((port) => !ports.includes(port)).map((port) => `no container has a port ${port}`),
    ...dropped.map((probe) => `a probe is not sent to the management port: ${JSON.stringify(probe)}`),
    ...missing("Secret", secrets),
    ...missing("ConfigMap", maps),
    ...missing("ServiceAccount", accounts),
    ...missing("Deployment", scaled)
  ]
}

interface Pod {
  readonly initContainers?: ReadonlyArray<Container>
  readonly containers: ReadonlyArray<Container>
  readonly volumes?: ReadonlyArray<{ readonly name: string; readonly emptyDir?: object }>
}

interface Container {
  readonly name: string
  readonly env?: ReadonlyArray<{ readonly name: string; readonly value?: string }>
  readonly args?: ReadonlyArray<string>
  readonly command?: ReadonlyArray<string>
  readonly volumeMounts?: ReadonlyArray<{
    readonly name: string
    readonly mountPath: string
    readonly subPath?: string
  }>
}

const podsIn = (manifests: ReadonlyArray<Manifest>) =>
  manifests
    .flatMap((manifest) => valuesOf(manifest, "template"))
    .flatMap((pod) => valuesOf(pod, "spec")) as ReadonlyArray<Pod>

const containersOf = ({ containers, initContainers = [] }: Pod) => [...initContainers, ...containers]

/** Containers that listen for others and make links that nobody could open. */
const namelessLinks = (manifests: ReadonlyArray<Manifest>): ReadonlyArray<string> =>
  podsIn(manifests)
    .flatMap(containersOf)
    .filter(({ args = [], env = [] }) => args.includes("serve") && !env.some(({ name }) => name === "PUBLIC_URL"))
    .map(({ name }) => `${name} does not know where browsers reach it`)

/** Addresses that links begin with and no ingress serves, and backends of an ingress that no service has. */
const lostPages = (manifests: ReadonlyArray<Manifest>): ReadonlyArray<string> => {
  const of = (kind: string) => manifests.filter((manifest) => manifest.kind === kind)
  const ingresses = of("Ingress")
  const hosts = ingresses.flatMap((ingress) => valuesOf(ingress, "host"))
  const paths = ingresses.flatMap((ingress) => valuesOf(ingress, "path"))
  const urls = podsIn(manifests)
    .flatMap(containersOf)
    .flatMap(({ env = [] }) => env.flatMap(({ name, value }) => (name === "PUBLIC_URL" && value ? [value] : [])))
  const backends = ingresses.flatMap((ingress) => valuesOf(ingress, "service")) as ReadonlyArray<{
    readonly name: string
    readonly port: { readonly name: string }
  }>
  return [
    ...urls.filter((url) => !hosts.includes(new URL(url).host)).map((url) => `no ingress serves ${url}`),
    ...["/keys", "/api/links/v1"].filter((path) => !paths.includes(path)).map((path) => `no ingress serves ${path}`),
    ...backends
      .filter(
        ({ name, port }) =>
          !of("Service").some(
            (service) =>
              service.metadata?.name === name && valuesOf(valuesOf(service, "ports"), "name").includes(port.name)
          )
      )
      .map(({ name, port }) => `there is no Service ${name} with a port ${port.name}`)
  ]
}

/** Commands of the guide that put a secret into the arguments of a program, which other users of the machine can see. */
const exposedSecrets = (guide: string): ReadonlyArray<string> =>
  Array.from(guide.matchAll(/--from-literal.*/g), ([command]) => `${command} shows a secret`)

/** Sockets that no gateway reaches, or that byok would refuse: others can write to an `emptyDir` itself, so it is a folder of one. */
const lostSockets = (manifests: ReadonlyArray<Manifest>): ReadonlyArray<string> =>
  podsIn(manifests)
    .map((pod) => ({ pod, all: containersOf(pod) }))
    .flatMap(({ all, pod }) =>
      all.flatMap(({ env = [], name, volumeMounts = [] }) => {
        const socket = env.find(({ name }) => name === "BYOK_GATEWAY_SOCKET")?.value
        if (socket === undefined) return []
        const mount = volumeMounts.find(({ mountPath }) => dirname(socket) === mountPath)
        const volume = pod.volumes?.find((volume) => volume.name === mount?.name && volume.emptyDir !== undefined)
        if (volume === undefined || mount?.subPath === undefined) {
          return [`${socket} of ${name} is in no folder of an emptyDir`]
        }
        const makes = all.some(({ command = [], volumeMounts = [] }) =>
          volumeMounts.some(
            ({ mountPath, name, subPath }) =>
              name === volume.name &&
              subPath === undefined &&
              command.join().includes(`mkdirSync('${mountPath}/${mount.subPath}'`)
          )
        )
        const isMounted = pod.containers.some(({ volumeMounts = [] }) =>
          volumeMounts.some((one) => one.name === volume.name && one.subPath === mount.subPath)
        )
        return broken([makes, `nothing makes the folder of ${socket}`], [isMounted, `no gateway mounts ${volume.name}`])
      })
    )

/** The files of a kustomization's folder that it does not list, and those it lists and does not have. */
const notListed = (path: string): ReadonlyArray<string> => {
  const [kustomization] = manifestsIn(path)
  const listed = valuesOf(kustomization, "resources").flat()
  const there = globSync("*.yaml", { cwd: dirname(path) }).filter((name) => !/^kustomization|\.example\./.test(name))
  return [
    ...there.filter((name) => !listed.includes(name)).map((name) => `${name} is not in ${path}`),
    ...listed
      .filter((name) => typeof name !== "string" || !there.includes(name))
      .map((name) => `${path} lists ${String(name)}`)
  ]
}

export const kubernetes: Check = {
  piece: "kubernetes",
  run: (deploy) => {
    const paths = globSync("kubernetes/**/*.yaml", { cwd: deploy }).map((path) => join(deploy, path))
    const kustomizations = paths.filter((path) => path.endsWith("kustomization.yaml"))
    const files = paths.filter((path) => !kustomizations.includes(path))
    try {
      const manifests = files.flatMap(manifestsIn)
      const invalid = manifests.flatMap((manifest) =>
        invalidIn(manifest).map((problem) => `${manifest.kind} ${manifest.metadata?.name}: ${problem}`)
      )
      const guide = readFileSync(join(deploy, "README.md"), "utf8")
      const misled = [
        ...lostSockets(manifests),
        ...namelessLinks(manifests),
        ...lostPages(manifests),
        ...exposedSecrets(guide)
      ]
      return [...invalid, ...unknownNames(manifests), ...misled, ...kustomizations.flatMap(notListed)]
    } catch (invalid) {
      return [String(invalid)]
    }
  },
  mistakes: [
    ["kubernetes/deployment.yaml", "readOnlyRootFilesystem", "readonlyRootFilesystem"],
    ["kubernetes/deployment.yaml", "/health/live, port: management", "/health/live, port: http"],
    ["kubernetes/deployment.yaml", "periodSeconds: 10", "periodSeconds: ten"],
    ["kubernetes/deployment.yaml", "secretName: byok-keyring", "secretName: byok-key"],
    ["kubernetes/deployment.yaml", "maxSurge: 1, ", "maxSurge: 1, maximum: 2, "],
    ["kubernetes/deployment.yaml", "name: PUBLIC_URL", "name: PUBLIC"],
    ["kubernetes/gateway.example.yaml", "name: PUBLIC_URL", "name: PUBLIC"],
    ["kubernetes/service.yaml", "component: service", "component: server"],
    ["kubernetes/service.yaml", "targetPort: http", "targetPort: https"],
    ["kubernetes/ingress.yaml", "host: keys.example.com", "host: key.example.com"],
    ["kubernetes/ingress.yaml", "path: /api/links/v1", "path: /api/links"],
    ["kubernetes/ingress.yaml", "port: { name: http }", "port: { name: https }"],
    ["README.md", "--from-file=keyring=/dev/stdin", "--from-literal=keyring=KEK"],
    ["kubernetes/podmonitor.yaml", "interval: 15s", "intervall: 15s"],
    ["kubernetes/podmonitor.yaml", "interval: 15s", "interval: 15"],
    ["kubernetes/networkpolicy.yaml", "port: management", "port: manage"],
    ["kubernetes/horizontalpodautoscaler.yaml", "autoscaling/v2", "autoscaling/v2beta1"],
    ["kubernetes/horizontalpodautoscaler.yaml", "kind: Deployment, name: byok", "kind: Deployment, name: b"],
    ["kubernetes/kustomization.yaml", "  - service.yaml\n", ""],
    ["kubernetes/gateway.example.yaml", "value: /run/byok/byok.sock", "value: /run/byok/gateway/byok.sock"],
    ["kubernetes/gateway.example.yaml", "mkdirSync('/run/volume/byok'", "mkdirSync('/run/volume/other'"],
    [
      "kubernetes/gateway.example.yaml",
      ", subPath: byok }\n            - { name: keyring",
      " }\n            - { name: keyring"
    ],
    ["kubernetes/gateway.example.yaml", "  emptyDir: {", "  emptydir: {"],
    [
      "kubernetes/gateway.example.yaml",
      "image: registry.example.com/gateway\n          volumeMounts:\n            - { name: socket",
      "volumeMounts:\n            - { name: keyring"
    ],
    ["kubernetes/migration/job.yaml", "restartPolicy: Never", "restartPolicy: Never\n      restart: 1"]
  ]
}

export const kustomize: Check = {
  piece: "kubernetes by kubectl kustomize",
  run: (deploy) =>
    Effect.gen(function* () {
      const { kubectl } = yield* installedPrograms(["kubectl"])
      const built = yield* Effect.forEach(["kubernetes", "kubernetes/migration"], (directory) =>
        Effect.map(runProgram(kubectl, ["kustomize", join(deploy, directory)]), (finished) => [
          ...problemsOf(finished),
          ...broken([/image: registry\.example\.com\/byok:/.test(finished.stdout), `${directory} names no image`])
        ])
      )
      return built.flat()
    }),
  mistakes: [
    ["kubernetes/kustomization.yaml", "- service.yaml", "- services.yaml"],
    ["kubernetes/kustomization.yaml", "newTag", "newVersion"],
    ["kubernetes/migration/kustomization.yaml", "- name: byok", "- name: byoks"],
    ["kubernetes/migration/job.yaml", "kind: Job\n", ""]
  ]
}

// The parts of internal/view that the pages draw, as the server sends them.

export type Amounts = Record<string, string>;

export interface List<T> {
  items: T[];
}

export interface PendingGroup {
  rootCause: string;
  class: string;
  count: number;
  pods: string[];
  oldest: string;
  example: string;
  message: string;
}

export interface Reason {
  code: string;
  class: string;
  plugin?: string;
  phase?: string;
  nodes?: number;
  example?: string;
  message: string;
  do?: string;
  haveNeed?: string;
}

export interface Device {
  minor: number;
  id?: string;
  resources: Amounts;
}

export interface DeviceFit {
  type?: string;
  asked?: number;
  need?: string;
  fit?: number;
  miss?: string;
  holders?: { pod: string; devices: number }[];
  holdersElsewhere?: number;
}

export interface Candidate {
  node: string;
  count: number;
  reasons: Reason[];
  devices?: DeviceFit;
  closest?: string;
}

export interface Shortage {
  dimension: string;
  limit: string;
  used: string;
  request: string;
  borrowers?: { quota: string; used: string; min: string; borrowed: string }[];
  borrowersHidden?: number;
  outside?: Amounts;
}

export interface Score {
  node: string;
  total: number;
  plugins: { name: string; score: number; weight: number; normalized: number; raw?: number }[];
}

export interface Decision {
  pod: string;
  uid?: string;
  time: string;
  node: string;
  feasible: number;
  of: number;
  scores: Score[] | null;
}

export interface Pod {
  pod: string;
  state: string;
  since?: string;
  scheduler?: string;
  qos?: string;
  asked?: string;
  queue?: { place?: string; attempts: number; lastAttempt?: string; nextTry?: string; wakesOn?: string[] };
  rootCause?: Reason;
  quota?: { quota: string; path: string[]; limitKind: string; shortages: Shortage[] };
  nodes: number;
  obstacles: Reason[] | null;
  minimalSets: { codes: string[]; nodes: number; missing?: Amounts }[] | null;
  candidates: Candidate[] | null;
  placement?: {
    node: string;
    cpuset?: string;
    pool?: string;
    poolCPUs?: string;
    numa: { node: number; socket: number; cpuset: string }[] | null;
    devices?: Record<string, Device[]>;
    overcommitted?: string[];
    differs?: string[];
  };
  rejection?: { node: string; reason: string; message?: string };
  decision?: Decision;
  fixes?: { kind: string; message: string; changes?: object[]; verifiedAt?: string; moves?: { pod: string; node: string; target: string }[] }[];
  search?: { runs: number; exhausted?: boolean; note?: string };
  data: { source: string; ages?: Record<string, number> };
  notes?: string[];
  phase?: string;
}

export interface Load {
  node: string;
  allocatable: string;
  requested: string;
  pods: number;
  lse: number;
  lsr: number;
  kubelet: number;
  ls: string;
  be: string;
  sharedPool: number;
  free: number;
  largestFit: number;
  largestOnOneNUMANode: number;
  fragmentedPercent: number;
  quotas?: Amounts;
  gangs?: Record<string, number>;
}

export interface NodeUse {
  node: string;
  cpu: { usedPercent: number; used?: string; p95?: string };
  memory: { usedPercent: number; used?: string };
  suppressed?: string;
}

export interface GPULoad {
  node: string;
  model?: string;
  gpus: number;
  usedPercent: number;
  free: number;
  shared: number;
  fit: Record<string, number>;
  stranded: { gpus: number; cause: string }[];
  degraded?: number;
  namespaces?: { namespace: string; usedPercent: number }[];
}

export interface CPU {
  cpu: number;
  state: string;
  pods?: string[];
}

export interface NUMA {
  node: number;
  memory?: string;
  memoryAllocatable?: string;
  memoryFree?: string;
  distances: number[];
  sharedPool: string;
  beSharedPool: string;
  free: number;
  cores: { core: number; l3: number; kind?: string; cpus: CPU[] }[];
}

export interface DeviceOnNode {
  type: string;
  minor: number;
  id: string;
  model?: string;
  healthy: boolean;
  degraded?: boolean;
  sliced?: boolean;
  numaNode: number;
  pcie?: string;
  total: Amounts;
  free: Amounts;
  usedPercent: number;
  holders: { pod: string; resources: Amounts; foreign?: boolean }[];
}

export interface Origin {
  source: string;
  key?: string;
}

export interface Node {
  node: string;
  arch?: string;
  cpus: number;
  cores: number;
  threadsPerCore: number;
  numaNodes: number;
  mode: { mode: string; from: Origin; wish?: string };
  kubelet: Record<"cpuManager" | "memoryManager" | "topologyManager", { policy: string; scope?: string; from: Origin }> & {
    version?: string;
    fault?: string;
  };
  policies: { cpuBind?: string; numaAllocate: string; numaTopology: string; from: Record<string, Origin> | null };
  allocatable: string;
  fault?: string;
  sockets: { socket: number; numaNodes: NUMA[] }[];
  pods: { namespace: string; name: string; qos: string; cpuset?: string; cpuExclusivePolicy?: string; numaNodes: number[] | null }[];
  devices?: {
    mode: string;
    list: DeviceOnNode[];
    links: { type: string; ids: [string, string]; lanes: number }[];
    linkKind?: string;
    unknownHolders?: number;
  };
  sharedPods: number;
  bePods: number;
  problems: { pod?: string; text: string }[];
}

export interface Round {
  pool: number;
  weights: number;
  got: number;
  returned: number;
}

export interface Quota {
  name: string;
  parentName: string;
  isParent: boolean;
  tree: string;
  path: string[];
  max: Amounts;
  min: Amounts;
  autoScaleMin: Amounts;
  sharedWeight: Amounts;
  runtime: Amounts;
  used: Amounts;
  lent: Amounts;
  borrowed: Amounts;
  request: Amounts;
  trace?: Record<string, { total: number; limited: number; base: number; pool: number; rounds: Round[] }>;
  problems?: string[];
}

export interface Gang {
  name: string;
  mode: string;
  gangMatchPolicy: string;
  minRequiredNumber: number;
  gangGroup: string[];
  children: string[];
  pendingChildren: string[];
  waitingForBindChildren: string[];
  boundChildren: string[];
  scheduleCycle: number;
  state: string;
  reason?: string;
  message?: string;
  rootCausePod?: string;
  degraded?: boolean;
  phase?: string;
  deadline?: string;
  network?: string[];
  lastPlan?: { at: string; gang?: string; placed: number; needed: number };
}

export interface WhatIfAnswer {
  snapshotGeneration: number;
  placements: { pod: string; node: string; resourceStatus?: { cpuset?: string }; devices?: Record<string, Device[]> }[];
  unschedulable: Pod[];
  victims: { pod: string; node: string; for: string }[];
  victimsHidden?: number;
}

export interface Kept {
  pod: string;
  node: string;
  reasons: { code: string; message: string; final: boolean }[];
}

export interface Evictions {
  jobs: {
    name: string;
    pod: string;
    successor?: string;
    from?: string;
    to?: string;
    phase: string;
    createTime?: string;
    evicted?: string;
    plugin?: string;
    wish?: string;
    reason?: string;
  }[];
  limits: { code: string; subject: string; have: number; limit: number; window?: string }[];
  movable: number;
  kept: Kept[];
  round?: { time: string; accepted: number; refused: (Kept & { plugin: string; wish: string })[] };
}

export interface Evicted {
  pod: string;
  time: string;
  by: string;
  why?: string;
}

export interface Reservation {
  name: string;
  phase: string;
  createTime?: string;
  node?: string;
  ttl?: string;
  expires?: string;
  cpuset?: string;
  devices: Record<string, Device[]> | null;
  allocatable: Amounts;
  allocated: Amounts;
  left: Amounts;
  allocatePolicy: string;
  allocateOnce: boolean;
  unschedulable?: boolean;
  owners: string[];
  currentOwners: string[];
  message?: string;
}

export interface ModeOfNode {
  node: string;
  mode: string;
  from: Origin;
  wish?: string;
  takeover?: { phase: number; since?: string; remainingPods: number };
  kubeletPolicy: string;
}

export interface Status {
  subject: string;
  findings: { check: string; status: string; found: string; where?: string; why?: string; remedy?: string }[];
  components: Component[];
  schedulerVersion?: string;
  reports: { kind: string; nodes: number; of: number; oldest?: string; oldestNode?: string }[];
  endpoints?: Record<string, string[]>;
}

export interface Component {
  name: string;
  desired: number;
  ready: number;
  versions: string[];
  pods?: Record<string, number>;
  leader?: string;
  leaderSince?: string;
  stuck?: string;
}

export interface Configuration {
  settings: { field: string; value: string; origin: string }[];
  gates: { name: string; enabled: boolean; default: boolean; stage: string; origin: string }[];
}

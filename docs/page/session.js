// Reading a Claude Code session: <session>.jsonl, and of each agent a file
// agent-<id>.jsonl (with or without agent-<id>.meta.json). It becomes lanes like ours.

import {
  isCall,
  isHeader,
  isMessage,
  isResult,
  measure,
  parseJson,
  promptOf,
} from './lane.js'

/** The tools that start an agent; older versions call it Task. */
export const TASK_TOOLS = ['task', 'Task', 'Agent']

/** Whether a file's text is a session's, and not one of our lanes. */
export const isSession = (text) =>
  !isHeader(parseJson(text.split('\n', 1)[0])) &&
  /"(sessionId|isSidechain)"\s*:/.test(text)

/**
 * The lanes of the files of one session: the main conversation first, then each agent.
 * `files` are `{ name, text }`, those of agents and their meta files among them.
 */
export function readSession(files) {
  const metas = new Map()
  const threads = new Map()
  for (const { name, text } of files) {
    const [, id] = /^agent-(.+?)(?:\.meta\.json|\.jsonl)$/.exec(name) ?? []
    if (name.endsWith('.meta.json')) metas.set(id, Object(parseJson(text)))
    else addRows(threads, name, id, text)
  }
  const lanes = [...threads.values()].map((thread) => toLane(thread, metas))
  const main = lanes.filter(({ isMain }) => isMain)
  const agents = lanes.filter(({ isMain }) => !isMain)
  linkAgents(lanes, agents)
  agents.sort((a, b) => a.time.localeCompare(b.time))
  const count = new Map()
  for (const lane of agents) {
    const type = lane.header.agent ?? 'agent'
    count.set(type, (count.get(type) ?? 0) + 1)
    lane.name = `${type}-${count.get(type)}`
  }
  return [...main, ...agents]
}

/** Rows by thread; old versions keep those of agents in the main file, as sidechains. */
function addRows(threads, file, fileId, text) {
  const roots = new Map() // of rows without an agentId: the first of their chain
  for (const line of text.split('\n')) {
    const row = parseJson(line)
    if (row === null || typeof row !== 'object') continue
    const root = roots.get(row.parentUuid) ?? row.uuid
    if (row.isSidechain) roots.set(row.uuid, root)
    const id = fileId ?? (row.isSidechain ? (row.agentId ?? root) : undefined)
    const key = id === undefined ? file : `agent ${id}`
    if (!threads.has(key)) threads.set(key, { file, id, rows: [] })
    threads.get(key).rows.push(row)
  }
}

function toLane({ file, id, rows }, metas) {
  const { lines, links, models } = linesOf(branchOf(rows))
  const { agentType, description, toolUseId } = metas.get(id) ?? {}
  const [told] = rows.flatMap(({ attributionAgent }) => attributionAgent ?? [])
  const header = {
    lane: 'main',
    mode: 'Claude Code',
    model: [...models].join(', ') || undefined,
    agent: typeof agentType === 'string' ? agentType : told,
    title: description,
    file,
  }
  const lane = { name: 'main', header, lines, unit: 'tokens', id, isMain: !id, links }
  const [first] = rows.flatMap(({ timestamp }) => timestamp ?? [])
  Object.assign(lane, measure({}, lines), { time: first ?? '', calledBy: toolUseId })
  lane.requests = tokensOf(lines)
  return lane
}

/**
 * The rows of the branch that ends with the last message. Results and further rows of a
 * reply hang beside that way when calls run at the same time: they belong to it.
 */
function branchOf(rows) {
  const isTold = ({ type, message }) => ['user', 'assistant'].includes(type) && message
  const chain = new Set()
  const told = rows.filter(isTold)
  const linked = told.filter(({ uuid, parentUuid }) => uuid && parentUuid)
  if (linked.length < told.length / 2) return rows // nothing says what belongs together
  let at = rows.findLastIndex(isTold)
  while (at >= 0) {
    chain.add(at)
    const { parentUuid, logicalParentUuid } = rows[at]
    const above = parentUuid ?? logicalParentUuid
    // What a compaction keeps is written again, so the last one before it is meant;
    // what hangs on a row that is not there, goes on from the message before it.
    const found = rows.findLastIndex(({ uuid }, i) => i < at && uuid === above)
    const before = rows.findLastIndex((row, i) => i < at && isTold(row))
    at = !above ? -1 : found < 0 ? before : found
  }
  const replies = new Set()
  const calls = new Set()
  const keep = (row) => {
    if (row.type === 'assistant' && row.message?.id) replies.add(row.message.id)
    for (const block of contentOf(row)) if (isCall(block)) calls.add(block.id)
  }
  for (const i of chain) keep(rows[i])
  const isOfReply = ({ type, message }) =>
    type === 'assistant' && replies.has(message?.id)
  for (const row of rows) if (isOfReply(row)) keep(row)
  const answers = (row) =>
    contentOf(row).some((block) => isResult(block) && calls.has(block.tool_use_id))
  const seen = new Set()
  return rows.filter((row, i) => {
    const isKept = chain.has(i) || isOfReply(row) || answers(row)
    const isNew = row.uuid === undefined || !seen.has(row.uuid)
    if (isKept) seen.add(row.uuid)
    return isKept && isNew
  })
}

const contentOf = ({ message }) =>
  Array.isArray(message?.content) ? message.content : []

/** Rows as lines of a lane, and which agent answered which call. */
function linesOf(rows) {
  const lines = []
  const [replies, askedBy, results] = [new Map(), new Map(), new Map()]
  const [links, models] = [[], new Set()]
  for (const row of rows) {
    const { type, message } = row
    if (type === 'system' && row.subtype === 'compact_boundary') {
      lines.push(compaction(row, lines, rows))
    } else if (row.isApiErrorMessage) {
      lines.push({ level: 'error', event: 'api_error', error: contentOf(row)[0]?.text })
    } else if (type === 'assistant' && isMessage(message)) {
      const line = replies.get(message.id) ?? { role: 'assistant', content: [] }
      if (line.content.length === 0) lines.push(line)
      if (message.id) replies.set(message.id, line)
      addToReply(line, message)
      for (const block of line.content.filter(isCall)) askedBy.set(block.id, line)
      if (message.model && message.model !== '<synthetic>') models.add(message.model)
    } else if (type === 'user' && isMessage(message)) {
      const [result] = contentOf(row).filter(isResult)
      const link = linkOf(row, result)
      if (link) links.push(link)
      const reply = askedBy.get(result?.tool_use_id)
      if (results.has(reply)) results.get(reply).content.push(...message.content)
      else {
        const content = result ? [...message.content] : message.content
        lines.push({ role: 'user', content, uuid: row.uuid })
        if (reply) results.set(reply, lines.at(-1))
      }
    }
  }
  return { lines, links, models }
}

/** Rows that share a message's id are one reply; its last usage is the whole one. */
function addToReply(line, { id, content, stop_reason, usage }) {
  line.content.push(...(Array.isArray(content) ? content : [content]))
  line.stop_reason = stop_reason ?? line.stop_reason ?? null
  line.usage = usage ?? line.usage
  line.id = id
}

function linkOf({ toolUseResult, isSidechain, agentId }, result) {
  const agent = toolUseResult?.agentId ?? (isSidechain ? undefined : agentId)
  const isAsync = toolUseResult?.status === 'async_launched'
  return agent && result ? { agent, call: result.tool_use_id, isAsync } : undefined
}

/** A compaction leaves out all messages but those that it names as kept. */
function compaction({ compactMetadata }, lines, rows) {
  const { trigger, preTokens, preservedMessages } = Object(compactMetadata)
  const uuids = new Set(preservedMessages?.uuids)
  const keptIds = rows.flatMap(({ uuid, message }) =>
    uuids.has(uuid) ? (message?.id ?? []) : [],
  )
  const told = lines.filter(isMessage)
  const isGone = (line) => !uuids.has(line.uuid) && !keptIds.includes(line.id)
  const replaced = told.flatMap((line, i) => (isGone(line) ? i + 1 : []))
  return { level: 'info', event: 'compacted', replaced, trigger, tokens: preTokens }
}

/** Requests in tokens, as the API counted them: input, and both of the cache. */
function tokensOf(lines) {
  return lines.flatMap(({ usage }, index) => {
    const fields = [
      'input_tokens',
      'cache_creation_input_tokens',
      'cache_read_input_tokens',
    ]
    const size = fields.reduce((sum, field) => sum + (Number(usage?.[field]) || 0), 0)
    return size > 0 ? { index, size } : []
  })
}

/** Which call started an agent: by the agent's id, else its meta file, else the prompt. */
function linkAgents(lanes, agents) {
  for (const { agent, call, isAsync } of lanes.flatMap(({ links }) => links)) {
    const lane = agents.find(({ id }) => id === agent)
    if (lane) Object.assign(lane, { calledBy: call, isAsync })
  }
  const taken = new Set(agents.flatMap(({ calledBy }) => calledBy ?? []))
  const calls = lanes
    .flatMap(({ lines }) => lines)
    .flatMap(({ content }) => (Array.isArray(content) ? content : []))
    .filter((block) => isCall(block) && TASK_TOOLS.includes(block.name))
  for (const lane of agents) {
    const told = calls.find(({ id, input }) => {
      if (lane.calledBy !== undefined) return id === lane.calledBy
      const prompt = promptOf(lane.lines.find(isMessage))
      return !taken.has(id) && prompt !== undefined && input?.prompt === prompt
    })
    lane.calledBy ??= told?.id
    taken.add(told?.id)
    lane.header.agent ??= told?.input?.subagent_type
    lane.header.title ??= told?.input?.description
  }
}

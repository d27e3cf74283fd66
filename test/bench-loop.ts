/** The shortest loop that does what step 04 does in a turn: `npm run bench` compares. */
import { readFileSync } from 'node:fs'
import Anthropic from '@anthropic-ai/sdk'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'

const client = new Anthropic()
const messages: MessageParam[] = [{ role: 'user', content: 'go' }]
for (;;) {
  const { content } = await client.messages.create({
    model: 'model',
    max_tokens: 8000,
    tools: [{ name: 'read_file', input_schema: { type: 'object' } }],
    messages,
  })
  messages.push({ role: 'assistant', content })
  const call = content.find((block) => block.type === 'tool_use')
  if (!call) break
  const result = readFileSync((call.input as { path: string }).path, 'utf8')
  messages.push({
    role: 'user',
    content: [{ type: 'tool_result', tool_use_id: call.id, content: result }],
  })
}

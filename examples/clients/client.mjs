// A client of `episafe serve` in JavaScript: ask who acts, act, report. Asking again after an error is safe.
export class Client {
  constructor(address = "http://127.0.0.1:8765", token = "", tries = 5) {
    Object.assign(this, { address, token, tries });
  }

  async ask(name, body = {}) {
    const headers = { "content-type": "application/json" };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await fetch(`${this.address}/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
        const said = await answer.json();
        if (answer.ok) return said;
        if (answer.status !== 503 || attempt >= this.tries) throw Object.assign(new Error(said.error), { final: true });
      } catch (error) {
        if (error.final || attempt >= this.tries) throw error;
      }
      await new Promise((wake) => setTimeout(wake, 100 * 2 ** attempt)); // the episode_id makes it safe to ask again
    }
  }
}
